#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/experiment/experiment_command.h"

namespace ragcache::loadgen {

// `ragcache-loadgen compare`: the same engine in several modes, which it starts itself.
struct CompareCommand {
  ExperimentCommand experiment;
  std::vector<std::string> modes{"none", "gpu-lru", "ragcache"};  // the first is the baseline
};
absl::Status compare(const CompareCommand& command);

}  // namespace ragcache::loadgen
