#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "services/controller/policy/node_history.h"
#include "services/controller/policy/policy.h"
#include "services/controller/policy/shadow_cache.h"

namespace ragcache::controller {

// Frequency × cost, where past requests count by half as much after every half-life. So popularity
// ages by itself instead of by a clock, and survives a stay outside of the cache. In logarithms the
// priority needs no refresh as time goes by, for all fall alike:
//
//   Priority = log2 f + t / H + log2 (T(0, tokens) / tokens)
//
// with f as of t, the last request for the node.
//
// How fast popularity ages differs between workloads and cache sizes, so H is chosen by
// measurement: each half-life has a shadow cache of the size that the cache has, over a sample of
// the nodes, and the one that lately hits most is used.
class AdaptivePolicy : public EvictionPolicy {
 public:
  // In requests. The last one forgets nothing.
  static constexpr std::array<double, 5> kHalfLives{500, 2'000, 8'000, 32'000,
                                                    std::numeric_limits<double>::infinity()};
  // Requests between two choices.
  static constexpr uint64_t kChoiceRequests = 250;
  // Priorities are logarithms: a copy of what the device has is worth a quarter of its node.
  static constexpr double kCopyDiscount = 2;
  // How many nodes the shadow of a half-life may know.
  static constexpr size_t kShadowNodesMax = 4096;

  explicit AdaptivePolicy(const PolicyOptions& options);

  std::string_view name() const override { return "adaptive"; }
  void on_request() override;
  void on_access(const NodeAccess& access) override;
  double priority(const SegmentId& id, uint32_t tokens, Tier tier) override;
  void on_leave(const SegmentId& id) override;
  void clear() override;
  void prefetch(const SegmentId& id) const override { history_.prefetch(id); }
  double copy_worth(double priority) const override { return priority - kCopyDiscount; }
  bool admits_to_host(double worth, double victim) const override { return worth >= victim; }
  bool looks_ahead() const override { return true; }
  uint64_t epoch() const override { return epoch_; }

  double half_life() const { return kHalfLives[chosen_]; }

 private:
  struct Entry {
    uint64_t last_request = 0;
    std::array<float, kHalfLives.size()> frequency{};  // as of last_request
    uint32_t resident_tokens = 0;                      // 0 if it is not in the cache
  };
  struct Shadow {
    ShadowCache cache;
    // Beyond the half-life in use, of late: tokens hit, and the sum of their squares.
    double gain = 0;
    double gain_squares = 0;
  };

  double score(const Entry& entry, uint32_t tokens, size_t half_life) const;
  bool is_sampled(const SegmentId& id) const;
  void ask_shadows(const Entry& entry, const SegmentId& id, uint32_t tokens);
  void choose();

  const PrefillSeconds prefill_seconds_;
  uint64_t request_ = 0;
  uint64_t resident_tokens_ = 0;
  NodeHistory<Entry> history_;

  std::array<Shadow, kHalfLives.size()> shadows_;
  uint32_t sample_shift_ = 0;  // one of 2^shift nodes is in the sample
  size_t chosen_ = kHalfLives.size() - 1;
  uint64_t epoch_ = 0;
};

}  // namespace ragcache::controller
