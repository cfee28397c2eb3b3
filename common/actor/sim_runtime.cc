#include "common/actor/sim_runtime.h"

#include <algorithm>

namespace ragcache {

class SimRuntime::SimMailbox : public Mailbox {
 public:
  SimMailbox(SimRuntime& runtime, uint64_t id) : runtime_(runtime), id_(id) {}

  void post(Task task) override {
    auto delay = std::uniform_int_distribution<int64_t>(0, runtime_.max_delay_.count());
    TimePoint arrival = runtime_.now_ + Duration(delay(runtime_.random_));
    TimePoint& last = runtime_.last_arrival_[{runtime_.current_, id_}];
    last = std::max(last, arrival);
    runtime_.enqueue(id_, last, std::move(task));
  }

  void post_after(Duration delay, Task task) override {
    runtime_.enqueue(id_, runtime_.now_ + delay, std::move(task));
  }

  TimePoint now() const override { return runtime_.now_; }
  uint64_t random() override { return runtime_.random_(); }

 private:
  SimRuntime& runtime_;
  const uint64_t id_;
};

SimRuntime::SimRuntime(uint64_t seed, Duration max_delay) : max_delay_(max_delay), random_(seed) {}

SimRuntime::~SimRuntime() {
  destroy_actors();
  // Tasks may own the last references to mailboxes; these must still find the runtime.
  while (!events_.empty()) events_.pop();
}

bool SimRuntime::step() {
  if (events_.empty()) return false;
  now_ = events_.top().time;
  current_ = events_.top().receiver;
  Mailbox::Task task = std::move(events_.top().task);
  events_.pop();
  task();
  current_ = 0;
  return true;
}

uint64_t SimRuntime::run(uint64_t max_steps) {
  uint64_t steps = 0;
  while (steps < max_steps && step()) ++steps;
  return steps;
}

std::unique_ptr<Mailbox> SimRuntime::make_mailbox() {
  return std::make_unique<SimMailbox>(*this, next_mailbox_++);
}

void SimRuntime::enqueue(uint64_t receiver, TimePoint time, Mailbox::Task task) {
  events_.push(Event{time, next_sequence_++, receiver, std::move(task)});
}

}  // namespace ragcache
