#pragma once

#include <cstdint>

#include "services/controller/policy/node_history.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// Least recently used: the priority is the number of accesses when the node had its last one.
// There is nothing to remember: whatever comes back was used last.
class LruPolicy : public EvictionPolicy {
 public:
  explicit LruPolicy(const PolicyOptions&) {}

  std::string_view name() const override { return "lru"; }
  void on_access(const NodeAccess& access) override { last_.access(access.id) = ++accesses_; }
  double priority(const SegmentId& id, uint32_t, Tier) override {
    const uint64_t* last = last_.find(id);
    return last == nullptr ? 0 : static_cast<double>(*last);
  }
  void on_leave(const SegmentId& id) override { last_.leave(id); }
  void clear() override { last_.clear(); }
  void prefetch(const SegmentId& id) const override { last_.prefetch(id); }

 private:
  uint64_t accesses_ = 0;  // exact as a double up to 2^53
  NodeHistory<uint64_t> last_{0};
};

}  // namespace ragcache::controller
