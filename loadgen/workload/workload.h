#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/token_counter.h"
#include "loadgen/workload/zipf.h"

namespace ragcache::loadgen {

// One request of a workload, before it is put into words for a server.
struct WorkloadRequest {
  std::string question;              // with its choices, where it has some
  std::vector<uint32_t> documents;   // places in Workload::documents, in prompt order
  std::optional<uint32_t> gold;      // place of the document that has the answer, where that is
                                     // known: what retrieval should find
  std::vector<std::string> answers;  // each of them right; none: not known
  uint32_t max_tokens = 1;
  double recorded_s = 0;  // after the first request
};

// What is asked, of which documents. Requests stand in the order in which they are sent.
struct Workload {
  std::string name;
  std::vector<CorpusDocument>
      documents;  // to be ingested where the server is told ids or finds them
  std::vector<WorkloadRequest> requests;
  bool retrieval = false;    // requests name no documents: retrieval is to find them
  bool has_times = false;    // recorded_s is of the recording
  bool substituted = false;  // texts were made up, only their lengths are real
  uint64_t left_out = 0;     // requests whose prompt was too long
};

// Of an answer, where neither the options nor a recording say so.
inline constexpr uint32_t kAnswerTokens = 16;

struct WorkloadOptions {
  std::string name;           // mmlu, nq, squad, ragpulse, mooncake, azure or zipf
  std::string data;           // the format's file or folder, as published; zipf has none
  CorpusOptions corpus;       // of mmlu and nq, without paths: what the server has; squad has its
                              // own paragraphs
  std::string exclude;        // mmlu, nq: leave out question files whose name contains this
  uint64_t max_requests = 0;  // the first so many; 0: all
  uint32_t max_tokens = 0;    // of an answer, at most; 0: as recorded, or 1 for mmlu, or
                              // kAnswerTokens
  uint32_t max_prompt_tokens = 0;  // leave out recorded requests with longer ones; 0: none
  uint64_t seed = 1;
  ZipfOptions zipf;
  TokenCounter count_tokens;  // of the model under test
};

// Questions of mmlu, nq and squad stand in an order drawn from the seed, those of squad without
// those whose paragraph was not drawn; recordings in the order of their times, which they have.
// INVALID_ARGUMENT names file, line and field, or the option. REQUIRES: count_tokens.
absl::StatusOr<Workload> read_workload(const WorkloadOptions& options);

// INVALID_ARGUMENT if the workload has fewer requests than --warm-up and --requests together.
absl::Status check_size(const Workload& workload, uint64_t warm_up, uint64_t requests);

}  // namespace ragcache::loadgen
