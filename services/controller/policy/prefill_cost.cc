#include "services/controller/policy/prefill_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/strings.h"

namespace ragcache::controller {
namespace {

// What a table says of no time at all, where it is extrapolated below its first column.
constexpr double kSecondsMin = 1e-9;

absl::Status check_axis(const char* name, const std::vector<uint32_t>& axis, size_t size_min) {
  if (axis.size() < size_min) {
    return absl::InvalidArgumentError(
        str_cat(name, ": has ", axis.size(), " values, must have at least ", size_min));
  }
  for (size_t i = 1; i < axis.size(); ++i) {
    if (axis[i] <= axis[i - 1]) {
      return absl::InvalidArgumentError(
          str_cat(name, ": must rise, but ", axis[i], " follows ", axis[i - 1]));
    }
  }
  return absl::OkStatus();
}

// The interval of the axis that x falls into, else the nearest one.
size_t interval_of(const std::vector<uint32_t>& axis, double x) {
  const auto above = std::upper_bound(axis.begin(), axis.end(), x);
  const auto place = static_cast<size_t>(above - axis.begin());
  return std::clamp<size_t>(place, 1, axis.size() - 1) - 1;
}

double weight_of(const std::vector<uint32_t>& axis, size_t interval, double x) {
  const double begin = axis[interval];
  return (x - begin) / (axis[interval + 1] - begin);
}

}  // namespace

absl::StatusOr<PrefillCost> PrefillCost::create(std::vector<uint32_t> cached_tokens,
                                                std::vector<uint32_t> new_tokens,
                                                std::vector<double> seconds) {
  if (absl::Status status = check_axis("cached_tokens", cached_tokens, 1); !status.ok()) {
    return status;
  }
  if (absl::Status status = check_axis("new_tokens", new_tokens, 2); !status.ok()) return status;
  if (seconds.size() != cached_tokens.size() * new_tokens.size() || seconds.size() > kPointsMax) {
    return absl::InvalidArgumentError(
        str_cat("seconds: has ", seconds.size(), " values, must have one for each of ",
                cached_tokens.size(), " x ", new_tokens.size(), ", at most ", kPointsMax));
  }
  for (const double value : seconds) {
    if (!(value > 0) || value > kSecondsMax) {
      return absl::InvalidArgumentError(
          str_cat("seconds: has ", value, ", must be above 0 and at most ", kSecondsMax));
    }
  }
  return PrefillCost(std::move(cached_tokens), std::move(new_tokens), std::move(seconds), true);
}

PrefillCost PrefillCost::unmeasured() {
  std::vector<uint32_t> cached{0, 32768};  // linear in α
  std::vector<uint32_t> fresh;
  for (uint32_t tokens = 16; tokens <= 32768; tokens *= 2) fresh.push_back(tokens);
  std::vector<double> seconds;
  for (const double a : cached) {
    for (const double b : fresh) {
      // An iteration, the matrix products, attention to what stands before.
      seconds.push_back(1e-3 * (3 + 0.25 * b + 1.5e-5 * b * (a + b / 2)));
    }
  }
  return {std::move(cached), std::move(fresh), std::move(seconds), false};
}

PrefillCost::PrefillCost(std::vector<uint32_t> cached_tokens, std::vector<uint32_t> new_tokens,
                         std::vector<double> seconds, bool measured)
    : cached_tokens_(std::move(cached_tokens)),
      new_tokens_(std::move(new_tokens)),
      seconds_(std::move(seconds)),
      measured_(measured) {}

double PrefillCost::seconds(uint32_t cached_tokens, uint32_t new_tokens) const {
  if (new_tokens == 0) return 0;
  const size_t column = interval_of(new_tokens_, new_tokens);
  const double along = weight_of(new_tokens_, column, new_tokens);
  if (cached_tokens_.size() == 1) return std::max(kSecondsMin, at_row(0, column, along));
  const double cached =
      std::clamp<double>(cached_tokens, cached_tokens_.front(), cached_tokens_.back());
  const size_t row = interval_of(cached_tokens_, cached);
  const double down = weight_of(cached_tokens_, row, cached);
  return std::max(kSecondsMin,
                  std::lerp(at_row(row, column, along), at_row(row + 1, column, along), down));
}

double PrefillCost::at_row(size_t row, size_t column, double weight) const {
  const double* values = &seconds_[row * new_tokens_.size() + column];
  return std::lerp(values[0], values[1], weight);
}

}  // namespace ragcache::controller
