#include "common/actor/actor.h"

#include <algorithm>

namespace ragcache {

void ActorRuntime::remember(const std::shared_ptr<ActorCell>& cell) {
  std::lock_guard lock(mutex_);
  if (cells_.size() >= prune_at_) {
    std::erase_if(cells_, [](const auto& weak) { return weak.expired(); });
    prune_at_ = std::max(prune_at_, cells_.size() * 2);
  }
  cells_.push_back(cell);
}

void ActorRuntime::destroy_actors() {
  std::vector<std::weak_ptr<ActorCell>> cells;
  {
    std::lock_guard lock(mutex_);
    cells.swap(cells_);
  }
  for (const auto& weak : cells) {
    if (auto cell = weak.lock()) cell->actor_.reset();
  }
}

}  // namespace ragcache
