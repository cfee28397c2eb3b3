#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "loadgen/workload/trace.h"
#include "loadgen/workload/workload.h"
#include "services/controller/prompt/prompt_plan.h"

namespace ragcache::loadgen {

// A workload as RAGCache will see it: the documents that retrieval finds for each request, and the
// prompt that comes of them.
struct Material {
  Workload workload;
  std::vector<std::vector<uint32_t>> documents;  // of each request, in prompt order
  std::vector<std::shared_ptr<const controller::PromptPlan>> plans;  // of each request
  Trace trace;  // the same documents, for a replay
  uint32_t block_tokens = 16;
  uint64_t working_set_tokens = 0;  // of all distinct prefixes, in whole blocks
  uint64_t kv_bytes_per_token = 0;  // in halves
  uint64_t head_dim = 0;            // numbers of a head's key, and of its value
  Digest digest{};                  // of the language model and the documents
};

// Where retrieval is to find the documents, it does so by exact search, with the encoder in
// `embedding_model`. `model` is the language model, `system_prompt` what stands before the
// documents.
absl::StatusOr<Material> prepare_material(Workload workload, uint32_t top_k,
                                          const std::string& embedding_model,
                                          const std::string& model,
                                          const std::string& system_prompt);

}  // namespace ragcache::loadgen
