#pragma once

#include <memory>

#include "common/actor/actor.h"

namespace ragcache {

// Runs actors on a pool of threads: a Boost.Asio strand per actor, steady timers. Thread safe.
class ThreadRuntime : public ActorRuntime {
 public:
  // REQUIRES: threads >= 1.
  explicit ThreadRuntime(int threads);
  ~ThreadRuntime() override;

  // Ends the threads after the messages they are handling, then the actors; messages still waiting
  // or sent later are dropped. Idempotent, from one thread.
  void stop();

 private:
  struct Pool;

  std::unique_ptr<Mailbox> make_mailbox() override;

  std::shared_ptr<Pool> pool_;
};

}  // namespace ragcache
