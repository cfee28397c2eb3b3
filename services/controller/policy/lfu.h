#pragma once

#include <cstdint>

#include "services/controller/policy/node_history.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// Least frequently used: the priority is how often the node was asked for.
class LfuPolicy : public EvictionPolicy {
 public:
  explicit LfuPolicy(const PolicyOptions& options) : frequency_(options.departed_limit()) {}

  std::string_view name() const override { return "lfu"; }
  void on_access(const NodeAccess& access) override { ++frequency_.access(access.id); }
  double priority(const SegmentId& id, uint32_t, Tier) override {
    const uint64_t* frequency = frequency_.find(id);
    return frequency == nullptr ? 0 : static_cast<double>(*frequency);
  }
  void on_leave(const SegmentId& id) override { frequency_.leave(id); }
  void clear() override { frequency_.clear(); }
  void prefetch(const SegmentId& id) const override { frequency_.prefetch(id); }

 private:
  NodeHistory<uint64_t> frequency_;
};

}  // namespace ragcache::controller
