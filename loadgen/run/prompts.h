#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/load/request.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {

// Who puts documents before a question.
enum class Retrieval {
  kServer,  // it finds them itself
  kNamed,   // it is told their ids
  kBefore,  // it is given their text
};

// The requests of a workload in words, without their times.
struct Prompts {
  std::vector<Request> requests;
  std::vector<std::vector<std::string>> documents;  // ids of each request; none: not known before
};

using Search = std::function<absl::StatusOr<std::vector<CorpusDocument>>(const std::string& query)>;

// `search` finds documents of requests that name none, where they are wanted before the request.
// INVALID_ARGUMENT if the server is to find documents of a workload that names them.
absl::StatusOr<Prompts> make_prompts(const Workload& workload, Retrieval retrieval, uint32_t top_k,
                                     const Search& search);

}  // namespace ragcache::loadgen
