#include "services/worker/engine/engine_actor.h"

#include <utility>

namespace ragcache::worker {

EngineActor::EngineActor(std::unique_ptr<Engine> engine, Sink sink)
    : engine_(std::move(engine)), sink_(std::move(sink)), thread_([this] { run(); }) {}

EngineActor::~EngineActor() { stop(); }

void EngineActor::post(Command command) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
}

void EngineActor::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EngineActor::run() {
  bool ran = false;
  for (;;) {
    std::deque<Command> taken;
    {
      std::unique_lock lock(mutex_);
      // After an iteration that ran, another may have work without any command.
      if (!ran) wake_.wait(lock, [this] { return stopping_ || !commands_.empty(); });
      if (stopping_) return;
      taken.swap(commands_);
    }
    for (Command& command : taken) engine_->take(std::move(command));
    ran = engine_->step();
    if (std::vector<Event> events = engine_->take_events(); !events.empty()) {
      sink_(std::move(events));
    }
  }
}

}  // namespace ragcache::worker
