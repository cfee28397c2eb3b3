#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/experiment/experiment_command.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// `ragcache-loadgen compare`: the same engine in several modes, which it starts itself.
struct CompareCommand {
  ExperimentCommand experiment;
  std::vector<std::string> modes{"none", "gpu-lru", "ragcache"};  // the first is the baseline
};
absl::Status compare(const CompareCommand& command);

// Adds the subcommand; when it is parsed, `chosen` becomes what runs it.
void add_compare(CLI::App& cli, std::function<absl::Status()>& chosen);

}  // namespace ragcache::loadgen
