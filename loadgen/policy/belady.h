#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "loadgen/policy/prefixes.h"
#include "services/controller/policy/policy.h"

namespace ragcache::loadgen {

// Belady's rule over the leaves of the tree: what is wanted again last goes first. With nodes of
// unequal size that hang together it is a strong heuristic, not a bound.
class BeladyPolicy : public controller::EvictionPolicy {
 public:
  // `prefixes` outlives it; the requests come in their order.
  explicit BeladyPolicy(const Prefixes& prefixes) : prefixes_(prefixes) {}

  std::string_view name() const override { return "belady"; }
  void on_request() override {
    ++request_;
    depth_ = 0;
  }
  void on_access(const controller::NodeAccess& access) override {
    next_use_[access.id] = prefixes_.next_use[request_ - 1][depth_++];
  }
  double priority(const SegmentId& id, uint32_t, controller::Tier) override {
    auto it = next_use_.find(id);
    return it == next_use_.end() ? -double{Prefixes::kNever} : -static_cast<double>(it->second);
  }
  void on_leave(const SegmentId& id) override { next_use_.erase(id); }
  void clear() override { next_use_.clear(); }
  // No device is lost in a replay.
  double copy_worth(double) const override { return std::numeric_limits<double>::lowest(); }
  bool admits_to_host(double worth, double victim) const override { return worth > victim; }

 private:
  const Prefixes& prefixes_;
  size_t request_ = 0;  // of those that have begun
  size_t depth_ = 0;
  absl::flat_hash_map<SegmentId, uint32_t> next_use_;
};

}  // namespace ragcache::loadgen
