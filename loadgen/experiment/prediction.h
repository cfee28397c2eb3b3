#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "loadgen/experiment/material.h"
#include "services/controller/policy/prefill_cost.h"

namespace ragcache::loadgen {

// What of a prompt is taken from the cache: by replay of a policy on tiers of these sizes, or
// nothing.
struct CacheModel {
  bool reuses = true;
  std::string policy;
  bool history = true;
  uint64_t device_tokens = 0;
  uint64_t host_tokens = 0;
};

// Seconds of prefill of each request, by replay and T(cached, new); copies between the tiers are
// not in it.
absl::StatusOr<std::vector<double>> prefill_seconds(const Material& material,
                                                    const CacheModel& cache,
                                                    const controller::PrefillCost& cost);

// Mean time to first token in milliseconds of requests that come at these times, ask for so much
// work and are served one after the other as they come (Lindley's recursion).
double queued_ttft_ms(const std::vector<Duration>& at, const std::vector<double>& seconds);

}  // namespace ragcache::loadgen
