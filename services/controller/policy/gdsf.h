#pragma once

#include <cstdint>
#include <functional>

#include "services/controller/policy/node_history.h"
#include "services/controller/policy/policy.h"
#include "services/controller/policy/tier_clocks.h"

namespace ragcache::controller {

// Greedy-Dual-Size-Frequency: Clock + Frequency × Cost / Size, the cost being the estimated prefill
// of the document alone.
class GdsfPolicy : public EvictionPolicy {
 public:
  explicit GdsfPolicy(const PolicyOptions& options)
      : prefill_seconds_(options.prefill_seconds), frequency_(options.departed_limit()) {}

  std::string_view name() const override { return "gdsf"; }
  void on_access(const NodeAccess& access) override { ++frequency_.access(access.id); }
  double priority(const SegmentId& id, uint32_t tokens, Tier tier) override {
    const uint64_t* frequency = frequency_.find(id);
    if (frequency == nullptr || tokens == 0) return clocks_.at(tier);
    return clocks_.at(tier) +
           static_cast<double>(*frequency) * prefill_seconds_(0, tokens) / tokens;
  }
  void on_evict(Tier tier, double priority) override { clocks_.on_evict(tier, priority); }
  double clock(Tier tier) const override { return clocks_.at(tier); }
  void on_leave(const SegmentId& id) override { frequency_.leave(id); }
  void clear() override { frequency_.clear(); }
  void prefetch(const SegmentId& id) const override { frequency_.prefetch(id); }

 private:
  const PrefillSeconds prefill_seconds_;
  TierClocks clocks_;
  NodeHistory<uint64_t> frequency_;
};

}  // namespace ragcache::controller
