#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// `ragcache-loadgen policy`: replays the documents of a trace through the knowledge tree, with each
// policy, at several sizes.
struct PolicyCommand {
  std::string trace;
  uint32_t top_k = 0;
  uint64_t requests = 0;
  bool shuffle = false;
  uint64_t seed = 1;
  std::vector<std::string> policies{"pgdsf", "adaptive", "gdsf", "lru", "lfu", "belady"};
  std::vector<double> sizes{1.0 / 48, 1.0 / 24, 1.0 / 12, 1.0 / 6, 1.0 / 3, 2.0 / 3};
  double device_share = 0.25;
  uint32_t block_tokens = 16;
  uint64_t bytes_per_token = 131'072;
  uint32_t waiting = 0;
  std::string profile;
  std::string json;
  std::string plots;
};
absl::Status policy(const PolicyCommand& command);

// Adds the subcommand; when it is parsed, `chosen` becomes what runs it.
void add_policy(CLI::App& cli, std::function<absl::Status()>& chosen);

}  // namespace ragcache::loadgen
