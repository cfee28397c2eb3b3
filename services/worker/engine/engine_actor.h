#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "services/worker/engine/engine.h"

namespace ragcache::worker {

// The engine on its own thread: takes what was posted, runs one iteration, hands out the events,
// and sleeps when there is nothing to do. Cancels and the like so take effect within an iteration.
class EngineActor {
 public:
  // Called on the engine's thread; must not block.
  using Sink = std::function<void(std::vector<Event>)>;

  // Prefills are timed once nothing was to be done for `quiet`: a request that comes meanwhile
  // waits for its end.
  EngineActor(std::unique_ptr<Engine> engine, Sink sink, Duration quiet = Duration::zero());
  ~EngineActor();

  // Thread safe, never blocks. What waits is bounded by the stream's flow control and by the
  // engine's limit of requests: a command beyond it is answered, not kept.
  void post(Command command);
  // A transfer has ended: there may be something to do. Thread safe.
  void wake();
  // Times a prefill (Engine::time_prefill) between requests. `answer` is called on the engine's
  // thread, or with UNAVAILABLE on the one that stops it. Thread safe.
  using Answer = std::function<void(absl::StatusOr<double>)>;
  void time_prefill(uint32_t cached_tokens, uint32_t new_tokens, Answer answer);
  // Ends the thread after the iteration it is in. Idempotent.
  void stop();

 private:
  struct Measurement {
    uint32_t cached_tokens;
    uint32_t new_tokens;
    Answer answer;
  };

  void run();

  // Constant after construction.
  const std::unique_ptr<Engine> engine_;  // the thread's own
  const Sink sink_;
  const Duration quiet_;

  TimePoint last_busy_{};  // the thread's own

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Command> commands_;
  std::deque<Measurement> measurements_;
  bool woken_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace ragcache::worker
