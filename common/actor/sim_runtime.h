#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "common/actor/actor.h"

namespace ragcache {

// Runs actors on the calling thread in virtual time. Every message takes a delay drawn from the
// seed, so that messages of different pairs of actors overtake one another in every order, while
// those of one pair stay in order. The same seed gives the same run.
class SimRuntime : public ActorRuntime {
 public:
  explicit SimRuntime(uint64_t seed, Duration max_delay = std::chrono::milliseconds(5));
  ~SimRuntime() override;

  // Handles the earliest message. False if there is none.
  bool step();
  // Steps until nothing is left or `max_steps` are done; returns the steps.
  uint64_t run(uint64_t max_steps);

  TimePoint now() const { return now_; }
  std::mt19937_64& random() { return random_; }

 private:
  class SimMailbox;
  using Pair = std::pair<uint64_t, uint64_t>;  // sender, receiver; 0 is the world outside

  struct Event {
    TimePoint time;
    uint64_t sequence;  // ties in order of sending
    uint64_t receiver;
    mutable Mailbox::Task task;

    bool operator<(const Event& other) const {
      return std::tie(time, sequence) > std::tie(other.time, other.sequence);
    }
  };

  std::unique_ptr<Mailbox> make_mailbox() override;
  void enqueue(uint64_t receiver, TimePoint time, Mailbox::Task task);

  const Duration max_delay_;
  std::mt19937_64 random_;
  TimePoint now_{};
  uint64_t next_mailbox_ = 1;
  uint64_t next_sequence_ = 0;
  uint64_t current_ = 0;  // the mailbox whose task runs
  std::priority_queue<Event> events_;
  std::map<Pair, TimePoint> last_arrival_;
};

}  // namespace ragcache
