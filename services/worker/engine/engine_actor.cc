#include "services/worker/engine/engine_actor.h"

#include <optional>
#include <utility>

namespace ragcache::worker {
namespace {

absl::Status stopping() { return absl::UnavailableError("the worker is stopping"); }

}  // namespace

EngineActor::EngineActor(std::unique_ptr<Engine> engine, Sink sink, Duration quiet)
    : engine_(std::move(engine)),
      sink_(std::move(sink)),
      quiet_(quiet),
      last_busy_(steady_now()),
      thread_([this] { run(); }) {}

EngineActor::~EngineActor() { stop(); }

void EngineActor::post(Command command) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
}

void EngineActor::wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void EngineActor::time_prefill(uint32_t cached_tokens, uint32_t new_tokens, Answer answer) {
  {
    std::unique_lock lock(mutex_);
    if (stopping_) {
      lock.unlock();
      return answer(stopping());
    }
    measurements_.push_back({cached_tokens, new_tokens, std::move(answer)});
  }
  wake_.notify_one();
}

void EngineActor::stop() {
  std::deque<Measurement> unanswered;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    unanswered.swap(measurements_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (const Measurement& one : unanswered) one.answer(stopping());
}

void EngineActor::run() {
  bool ran = false;
  for (;;) {
    std::deque<Command> taken;
    std::optional<Measurement> measurement;
    {
      std::unique_lock lock(mutex_);
      const auto can_measure = [this] {
        return commands_.empty() && !measurements_.empty() && !engine_->has_requests();
      };
      const auto called = [this] { return stopping_ || woken_ || !commands_.empty(); };
      // After an iteration that ran, another may have work without any command.
      if (!ran && can_measure()) {
        wake_.wait_until(lock, last_busy_ + quiet_, called);
      } else if (!ran) {
        wake_.wait(lock, [&] { return called() || can_measure(); });
      }
      if (stopping_) return;
      if (can_measure() && steady_now() >= last_busy_ + quiet_) {
        measurement = std::move(measurements_.front());
        measurements_.pop_front();
      }
      taken.swap(commands_);
      woken_ = false;
    }
    for (Command& command : taken) engine_->take(std::move(command));
    ran = engine_->step();
    if (ran || !taken.empty()) last_busy_ = steady_now();
    if (std::vector<Event> events = engine_->take_events(); !events.empty()) {
      sink_(std::move(events));
    }
    if (measurement.has_value()) {
      measurement->answer(
          engine_->time_prefill(measurement->cached_tokens, measurement->new_tokens));
    }
  }
}

}  // namespace ragcache::worker
