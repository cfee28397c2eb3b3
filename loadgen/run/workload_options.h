#pragma once

#include <string>

#include "loadgen/workload/arrivals.h"
#include "loadgen/workload/workload.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// Options of every command that reads a workload: all of `options` but the seed, the number of
// requests, zipf's top_k, and the counter, which comes of `tokenizer`.
void add_workload_options(CLI::App& command, WorkloadOptions& options, std::string& tokenizer);

// Options of when requests are sent: all of `options` but the seed.
void add_arrival_options(CLI::App& command, ArrivalOptions& options);

}  // namespace ragcache::loadgen
