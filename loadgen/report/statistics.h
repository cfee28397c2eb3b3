#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace ragcache::loadgen {

// Of samples, by linear interpolation between ranks; zeros without samples.
struct Statistics {
  size_t count = 0;  // of the samples
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;

  // One of the figures; none without samples.
  std::optional<double> known(double Statistics::*figure) const {
    return count > 0 ? std::optional(this->*figure) : std::nullopt;
  }
};
Statistics statistics(std::vector<double> samples);

// Of sorted samples, `share` from 0 to 1. REQUIRED: there are some.
double percentile(const std::vector<double>& sorted, double share);

}  // namespace ragcache::loadgen
