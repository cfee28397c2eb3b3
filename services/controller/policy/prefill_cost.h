#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace ragcache::controller {

// T(α, β): how long a prefill of β new tokens takes after α cached ones, by bilinear interpolation
// in a table of measured times. Outside the table α is clamped and β extrapolated linearly.
// Immutable.
class PrefillCost {
 public:
  static constexpr size_t kPointsMax = 1 << 16;
  static constexpr double kSecondsMax = 86'400;

  // `seconds` of cached_tokens[i] and new_tokens[j] is at i · new_tokens.size() + j.
  // INVALID_ARGUMENT names the field: axes must rise, with at least one value of cached_tokens and
  // two of new_tokens; times must be above 0.
  static absl::StatusOr<PrefillCost> create(std::vector<uint32_t> cached_tokens,
                                            std::vector<uint32_t> new_tokens,
                                            std::vector<double> seconds);
  // Stands in until an engine was measured: the shape of a small model's times on two cores.
  static PrefillCost unmeasured();

  // Above 0 for new_tokens > 0, and 0 for none.
  double seconds(uint32_t cached_tokens, uint32_t new_tokens) const;
  bool measured() const { return measured_; }

 private:
  PrefillCost(std::vector<uint32_t> cached_tokens, std::vector<uint32_t> new_tokens,
              std::vector<double> seconds, bool measured);

  // Along one row of the table.
  double at_row(size_t row, size_t column, double weight) const;

  std::vector<uint32_t> cached_tokens_;
  std::vector<uint32_t> new_tokens_;
  std::vector<double> seconds_;  // [cached_tokens, new_tokens]
  bool measured_;
};

}  // namespace ragcache::controller
