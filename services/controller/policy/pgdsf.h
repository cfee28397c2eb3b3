#pragma once

#include <cstdint>
#include <deque>

#include "services/controller/policy/node_history.h"
#include "services/controller/policy/policy.h"
#include "services/controller/policy/tier_clocks.h"

namespace ragcache::controller {

// Prefix-aware Greedy-Dual-Size-Frequency, as RAGCache publishes it:
//
//   Priority = Clock + Frequency × AvgCost,   AvgCost = (1/m) Σ Cost_i / NewSize_i
//
// over the m requests that asked for the node while it was not cached, each with its own estimated
// prefill time and count of new tokens. Frequency counts the requests for it, cached or not, among
// the last `window_requests`.
class PgdsfPolicy : public EvictionPolicy {
 public:
  explicit PgdsfPolicy(const PolicyOptions& options)
      : window_requests_(options.window_requests),
        prefill_seconds_(options.prefill_seconds),
        history_(options.departed_limit()) {}

  std::string_view name() const override { return "pgdsf"; }
  void on_request() override;
  void on_access(const NodeAccess& access) override;
  double priority(const SegmentId& id, uint32_t tokens, Tier tier) override;
  void on_evict(Tier tier, double priority) override { clocks_.on_evict(tier, priority); }
  double clock(Tier tier) const override { return clocks_.at(tier); }
  void on_leave(const SegmentId& id) override { history_.leave(id); }
  void clear() override;
  void prefetch(const SegmentId& id) const override { history_.prefetch(id); }

 private:
  struct Entry {
    uint64_t first_request = 0;  // since it is known; its accesses before that were forgotten
    double cost_sum = 0;         // seconds a token, over the misses
    uint32_t misses = 0;
    uint32_t frequency = 0;  // accesses in the window
  };
  struct Access {
    uint64_t request;
    SegmentId id;
  };

  const uint64_t window_requests_;
  const PrefillSeconds prefill_seconds_;
  uint64_t request_ = 0;
  TierClocks clocks_;
  NodeHistory<Entry> history_;
  std::deque<Access> window_;  // oldest first
};

}  // namespace ragcache::controller
