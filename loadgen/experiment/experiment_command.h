#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadgen/load/load.h"
#include "loadgen/workload/arrivals.h"
#include "loadgen/workload/workload.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// What the commands that run experiments have in common.
struct ExperimentCommand {
  WorkloadOptions workload;
  ArrivalOptions arrivals;  // its rate is the experiment's
  uint32_t top_k = 2;
  std::string model;
  std::string embedding_model;
  std::string ragcache;  // the program; empty: beside this one
  std::string work_dir;  // of states and logs; empty: a temporary folder, removed at the end
  uint32_t threads = 0;  // of each server; 0: as many as there are cores
  std::string activations = "fp32";  // of RAGCache's servers, as the next
  std::string kv_dtype = "fp16";
  double device_share = 0.125;  // of the working set of the run
  double host_share = 0.5;
  uint64_t warm_up = 300;
  uint64_t requests = 600;
  std::vector<double> rates{0.3, 0.6, 0.9};
  double capacity = 0;
  uint64_t capacity_requests = 24;
  uint32_t rounds = 3;
  LoadOptions load;  // of warm-ups too
  double slo_factor = 5;
  std::string
      profile;  // measured prefill times, for servers and predictions; empty: measured first
  std::string json;
  std::string plots;
  std::string report;
};

void add_experiment_options(CLI::App& command, ExperimentCommand& options);

}  // namespace ragcache::loadgen
