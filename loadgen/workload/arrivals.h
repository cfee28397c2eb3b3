#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {

struct ArrivalOptions {
  // poisson: gaps are exponential. bursts: so they are within bursts, between which none comes;
  // bursts and silences have exponential lengths, and both together the mean rate. recorded: the
  // workload's own times.
  std::string process = "poisson";
  double rate = 1;             // requests a second, in the mean; not of recorded ones
  double burst_share = 0.25;   // of the time that bursts take
  double burst_period_s = 10;  // mean of a burst and the silence behind it
  double speedup = 1;          // recorded times are divided by this
  uint64_t seed = 1;
};

// When each request of the workload is sent, after the start, in their order. INVALID_ARGUMENT
// names the option.
absl::StatusOr<std::vector<Duration>> arrivals(const Workload& workload,
                                               const ArrivalOptions& options);

}  // namespace ragcache::loadgen
