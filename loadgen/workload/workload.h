#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"

namespace ragcache::loadgen {

// One request of a workload, before it is put into words for a server.
struct WorkloadRequest {
  std::string question;             // with its choices, where it has some
  std::vector<uint32_t> documents;  // places in Workload::documents, in prompt order; none:
                                    // retrieval is to find them
  std::vector<std::string> answers;  // each of them right; none: not known
  std::string session;               // of which it is a turn; empty: of none
  uint32_t max_tokens = 1;
  double recorded_s = 0;  // after the first request of the recording
};

// What is asked, of which documents. Requests stand in the order in which they are sent.
struct Workload {
  std::string name;
  std::vector<CorpusDocument> documents;  // to be ingested where retrieval finds them
  std::vector<WorkloadRequest> requests;
  bool has_times = false;  // recorded_s is of the recording
};

}  // namespace ragcache::loadgen
