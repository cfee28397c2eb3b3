#pragma once

#include "absl/container/flat_hash_map.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// Least recently used: the priority is the number of accesses when the node had its last one.
class LruPolicy : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  void on_access(const NodeAccess& access) override { last_[access.id] = ++accesses_; }
  double priority(const SegmentId& id, uint32_t, Tier) override {
    auto it = last_.find(id);
    return it == last_.end() ? 0 : static_cast<double>(it->second);
  }
  void on_evict(Tier, double) override {}
  void on_leave(const SegmentId& id) override { last_.erase(id); }
  void clear() override { last_.clear(); }

 private:
  uint64_t accesses_ = 0;  // exact as a double up to 2^53
  absl::flat_hash_map<SegmentId, uint64_t> last_;
};

}  // namespace ragcache::controller
