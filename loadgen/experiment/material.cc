#include "loadgen/experiment/material.h"

#include <algorithm>
#include <utility>

#include "common/model/model_files.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/policy/prefixes.h"
#include "loadgen/record/retriever.h"

namespace ragcache::loadgen {
namespace {

absl::Status find_documents(Material& material, uint32_t top_k,
                            const std::string& embedding_model) {
  const Workload& workload = material.workload;
  if (!workload.retrieval) {
    for (const WorkloadRequest& request : workload.requests) {
      material.documents.push_back(request.documents);
    }
    return absl::OkStatus();
  }
  if (workload.documents.empty()) {
    return absl::InvalidArgumentError("--corpus: is missing, must name documents to be found");
  }
  std::vector<std::string> questions;
  for (const WorkloadRequest& request : workload.requests) questions.push_back(request.question);
  RAG_ASSIGN_OR_RETURN(const auto retriever,
                       Retriever::create(embedding_model, workload.documents));
  RAG_ASSIGN_OR_RETURN(material.documents, retriever->find(questions, top_k));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Material> prepare_material(Workload workload, uint32_t top_k,
                                          const std::string& embedding_model,
                                          const std::string& model,
                                          const std::string& system_prompt) {
  Material material{.workload = std::move(workload)};
  RAG_RETURN_IF_ERROR(find_documents(material, top_k, embedding_model));
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(model));
  RAG_ASSIGN_OR_RETURN(const auto format, files->prompt_format("auto"));
  const ModelConfig& config = files->config();
  material.kv_bytes_per_token =
      static_cast<uint64_t>(2 * config.n_layers * config.n_kv_heads * config.head_dim) *
      sizeof(uint16_t);
  material.head_dim = static_cast<uint64_t>(config.head_dim);

  Sha256 digest;
  digest.update(files->fingerprint());
  std::vector<controller::PromptDocument> documents;
  material.trace.name = material.workload.name;
  for (const CorpusDocument& document : material.workload.documents) {
    controller::PromptDocument& made = documents.emplace_back();
    made.id = document.id;
    made.tokens = format->document(document.title, document.text);
    made.token_digest = digest_of_tokens(made.tokens);
    digest.update(document.id).update(made.token_digest);
    material.trace.documents.push_back({document.id, static_cast<uint32_t>(made.tokens.size())});
  }
  material.digest = digest.finish();
  material.trace.requests = material.documents;
  const SegmentId root = SegmentId::root(files->fingerprint(), "loadgen");
  for (size_t i = 0; i < material.documents.size(); ++i) {
    std::vector<controller::PromptDocument> used;
    for (const uint32_t place : material.documents[i]) used.push_back(documents[place]);
    RAG_ASSIGN_OR_RETURN(auto plan,
                         controller::make_prompt_plan(
                             *format, root, system_prompt, std::move(used), documents.size(),
                             {{ChatRole::kUser, material.workload.requests[i].question}}));
    material.plans.push_back(std::move(plan));
  }
  material.working_set_tokens =
      prefixes_of(material.trace, material.block_tokens).working_set_blocks * material.block_tokens;
  return material;
}

}  // namespace ragcache::loadgen
