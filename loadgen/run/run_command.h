#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/load/load.h"
#include "loadgen/workload/arrivals.h"
#include "loadgen/workload/workload.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// `ragcache-loadgen run`: a workload against a server that runs already.
struct RunCommand {
  EndpointOptions endpoint;     // `segments` follows from `api`
  std::string api;              // ragcache or openai; empty: by `retrieval`
  std::string search_endpoint;  // RAGCache by HTTP, for ingest and search; empty: the endpoint
  WorkloadOptions workload;     // seed, counter, requests and top_k follow from below
  std::string tokenizer;        // language model whose tokens count
  // Process empty: recorded where the workload has times, else poisson. Rate, speed-up and seed
  // follow from below.
  ArrivalOptions arrivals{.process = ""};
  std::optional<double> rate;     // not of recorded arrivals
  std::optional<double> speedup;  // of recorded ones alone
  uint64_t requests = 600;        // that count; 0: all of the workload
  uint64_t warm_up = 0;
  uint64_t seed = 1;
  uint32_t top_k = 2;
  std::string retrieval;  // server, named or before; empty: by the workload
  bool ingest = false;
  LoadOptions load;
  std::string json;
  std::string plots;
  std::string report;
};

// How the command's requests arrive. INVALID_ARGUMENT if it has a rate or speed-up that does
// nothing there.
absl::StatusOr<ArrivalOptions> arrivals_of(const RunCommand& command, const Workload& workload);

// Writes its reports even of a load that ended early. A Status tells of that, or of requests that
// failed.
absl::Status run(const RunCommand& command);

// Adds the subcommand; when it is parsed, `chosen` becomes what runs it.
void add_run(CLI::App& cli, std::function<absl::Status()>& chosen);

}  // namespace ragcache::loadgen
