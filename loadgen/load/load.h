#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/load/request.h"

namespace ragcache::loadgen {

// Where requests go.
struct EndpointOptions {
  std::string url;  // http://host:port of an OpenAI-compatible server; grpc://host:port of ours
  std::string model = "ragcache";
  std::string api_key;   // none: empty
  bool segments = true;  // the server is RAGCache: it takes `segments`, and `rag` without documents
  std::string extra;     // JSON object whose members go into every request's body (HTTP)
};

struct LoadOptions {
  uint32_t max_in_flight = 8192;  // requests beyond are not sent, and counted as errors
  double timeout_s = 600;         // of one request
  // The load ends early, with what it has, after so many failures in a row; 0: never.
  uint32_t max_failures_in_row = 20;
  // Every second or so: requests sent, ended and failed.
  std::function<void(uint64_t sent, uint64_t ended, uint64_t failed)> on_progress;
};

struct LoadResult {
  std::vector<Outcome> outcomes;  // of the requests, in their order; those not sent have an error
  absl::Status status;            // why it ended early
};

// Open loop: each request is sent at its time, whatever became of the others. INVALID_ARGUMENT if
// the options are none; UNAVAILABLE if nobody answers at the start. SIGINT and SIGTERM end it
// early. By HTTP all work is done on the caller's thread: one core drives thousands of streams, and
// leaves the others to the server. By gRPC that thread sends; answers are read, and their times
// taken, on gRPC's own threads.
absl::StatusOr<LoadResult> run_load(const EndpointOptions& endpoint,
                                    const std::vector<Request>& requests,
                                    const LoadOptions& options);

}  // namespace ragcache::loadgen
