#pragma once

#include <string>

#include "loadgen/workload/arrivals.h"
#include "loadgen/workload/workload.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// Options of every command that reads a workload: all of `options` but the seed, the number of
// requests, zipf's top_k, and the counter.
void add_workload_options(CLI::App& command, WorkloadOptions& options);

// Options of when requests are sent: all of `options` but the seed, the rate and the speed-up.
void add_arrival_options(CLI::App& command, ArrivalOptions& options);

}  // namespace ragcache::loadgen
