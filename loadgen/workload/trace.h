#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ragcache::loadgen {

// A document as the cache sees it.
struct TraceDocument {
  std::string id;
  uint32_t tokens = 0;
  bool operator==(const TraceDocument&) const = default;
};

// Which documents each request had in its prompt, in prompt order.
struct Trace {
  static constexpr uint32_t kDocumentTokensMax = 1 << 20;

  std::string name;
  std::vector<TraceDocument> documents;         // each once
  std::vector<std::vector<uint32_t>> requests;  // places in `documents`; none is empty
};

struct TraceOptions {
  uint32_t top_k = 0;         // keep the first so many documents of a request; 0: all
  uint64_t max_requests = 0;  // keep the first so many requests; 0: all
  bool shuffle = false;       // requests in an order drawn from `seed`, before any is left out
  uint64_t seed = 1;
};

// Reads a file of one {"documents":[{"id":"…","tokens":n},…]} a line (.gz too), or a folder of the
// RAGPulse trace, whose requests come by their timestamps. Requests without documents are left out.
// INVALID_ARGUMENT names file, line and field.
absl::StatusOr<Trace> read_trace(const std::string& path, const TraceOptions& options);

}  // namespace ragcache::loadgen
