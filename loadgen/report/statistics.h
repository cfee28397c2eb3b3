#pragma once

#include <vector>

namespace ragcache::loadgen {

// Of samples, by linear interpolation between ranks; zeros without samples.
struct Statistics {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
Statistics statistics(std::vector<double> samples);

}  // namespace ragcache::loadgen
