#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/experiment/prediction.h"

namespace ragcache::loadgen {

// A way to run the same engine, as options of `ragcache serve`.
struct Mode {
  std::string name;
  std::vector<std::string> flags;
  CacheModel cache;
};

// What the two tiers may take.
struct TierSizes {
  uint64_t device_mib = 0;
  uint64_t host_mib = 0;
  uint64_t device_tokens = 0;  // whose KV that is
  uint64_t host_tokens = 0;
};

// none: no reuse across requests, as the paper's vLLM. gpu-lru: prefixes on the device alone, by
// LRU, as the paper's SGLang. ragcache: all of it. ragcache-POLICY: another eviction policy.
// ragcache-no-host: one tier. INVALID_ARGUMENT for another name tells these.
absl::StatusOr<Mode> make_mode(const std::string& name, const TierSizes& sizes);

}  // namespace ragcache::loadgen
