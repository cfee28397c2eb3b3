#include "loadgen/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ragcache::loadgen {

double percentile(const std::vector<double>& sorted, double share) {
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

Statistics statistics(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.count = samples.size(),
          .mean = std::accumulate(samples.begin(), samples.end(), 0.0) /
                  static_cast<double>(samples.size()),
          .p50 = percentile(samples, 0.5),
          .p90 = percentile(samples, 0.9),
          .p99 = percentile(samples, 0.99),
          .max = samples.back()};
}

}  // namespace ragcache::loadgen
