#pragma once

#include <cstddef>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// What a policy knows of nodes, by id. Of those that left the cache the last `departed_limit` are
// remembered, which 0 makes none.
template <typename Entry>
class NodeHistory {
 public:
  explicit NodeHistory(size_t departed_limit) : departed_limit_(departed_limit) {}

  // The node's, made anew if it is not known; the node is in the cache from now on. The reference
  // holds until the next call.
  Entry& access(const SegmentId& id) {
    Slot& slot = slots_[id];
    if (slot.departed.has_value()) {
      departed_.erase(*slot.departed);
      slot.departed.reset();
    }
    return slot.entry;
  }

  // nullptr if the node is not known. Holds until the next access().
  Entry* find(const SegmentId& id) {
    auto it = slots_.find(id);
    return it == slots_.end() ? nullptr : &it->second.entry;
  }

  // The node has left the cache. Nothing happens if it is not known, or had left before.
  void leave(const SegmentId& id) {
    auto it = slots_.find(id);
    if (it == slots_.end() || it->second.departed.has_value()) return;
    it->second.departed = departed_.insert(departed_.end(), id);
    if (departed_.size() <= departed_limit_) return;
    slots_.erase(departed_.front());
    departed_.pop_front();
  }

  void clear() {
    slots_.clear();
    departed_.clear();
  }

  size_t size() const { return slots_.size(); }

 private:
  using Departed = std::list<SegmentId>;  // the first to leave in front
  struct Slot {
    Entry entry{};
    std::optional<Departed::iterator> departed;
  };

  const size_t departed_limit_;
  absl::flat_hash_map<SegmentId, Slot, SegmentIdHash> slots_;
  Departed departed_;
};

}  // namespace ragcache::controller
