#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/huge_pages.h"
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
    if (slot.departure != 0) {
      slot.departure = 0;
      --departed_;
    }
    return slot.entry;
  }

  // nullptr if the node is not known. Holds until the next access().
  Entry* find(const SegmentId& id) {
    auto it = slots_.find(id);
    return it == slots_.end() ? nullptr : &it->second.entry;
  }

  // The node will soon be asked for.
  void prefetch(const SegmentId& id) const { slots_.prefetch(id); }

  // The node has left the cache. Nothing happens if it is not known, or had left before.
  void leave(const SegmentId& id) {
    auto it = slots_.find(id);
    if (it == slots_.end() || it->second.departure != 0) return;
    if (departed_limit_ == 0) {
      slots_.erase(it);
      return;
    }
    it->second.departure = ++departures_;
    queue_.push_back({id, departures_});
    if (++departed_ > departed_limit_) forget_oldest();
    if (queue_.size() > 2 * departed_limit_) {
      std::erase_if(queue_, [this](const Departure& each) { return !is_latest(each); });
    }
    prefetch(queue_.front().id);  // forgotten next: nodes leave several at a time
  }

  void clear() {
    slots_.clear();
    queue_.clear();
    departed_ = 0;
  }

  size_t size() const { return slots_.size(); }

 private:
  struct Slot {
    Entry entry{};
    uint64_t departure = 0;  // the number of its departure; 0 while it is in the cache
  };
  struct Departure {
    SegmentId id;
    uint64_t number;
  };

  // Whether the node has not come back since.
  bool is_latest(const Departure& departure) const {
    auto it = slots_.find(departure.id);
    return it != slots_.end() && it->second.departure == departure.number;
  }

  void forget_oldest() {
    while (!is_latest(queue_.front())) queue_.pop_front();
    slots_.erase(queue_.front().id);
    queue_.pop_front();
    --departed_;
  }

  const size_t departed_limit_;
  absl::flat_hash_map<SegmentId, Slot, SegmentIdHash, std::equal_to<SegmentId>,
                      HugePageAllocator<std::pair<const SegmentId, Slot>>>
      slots_;
  uint64_t departures_ = 0;
  size_t departed_ = 0;          // nodes known that are not in the cache
  std::deque<Departure> queue_;  // oldest first, also of nodes that came back
};

}  // namespace ragcache::controller
