#include "loadgen/compare/compare_command.h"

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/compare/mode.h"
#include "loadgen/experiment/workbench.h"

namespace ragcache::loadgen {
namespace {

// Retrieval is the server's, unless the workload says what it found.
std::vector<Request> requests_of(const Material& material, uint32_t top_k) {
  std::vector<Request> requests;
  for (const WorkloadRequest& asked : material.workload.requests) {
    ChatPrompt prompt{.text = asked.question};
    if (material.workload.retrieval) prompt.retrieval.emplace().top_k = top_k;
    if (!asked.documents.empty()) prompt.retrieval.emplace();
    for (const uint32_t place : asked.documents) {
      prompt.retrieval->documents.push_back(material.workload.documents[place].id);
    }
    requests.push_back({.prompt = std::move(prompt), .max_tokens = asked.max_tokens});
  }
  return requests;
}

}  // namespace

absl::Status compare(const CompareCommand& command) {
  if (command.modes.empty()) return absl::InvalidArgumentError("--modes: names none");
  for (const std::string& name : command.modes) RAG_RETURN_IF_ERROR(make_mode(name, {}).status());
  RAG_ASSIGN_OR_RETURN(const auto bench, Workbench::create(command.experiment));
  RAG_RETURN_IF_ERROR(bench->prepare());

  const TierSizes sizes{.device_mib = bench->device_mib(),
                        .host_mib = bench->host_mib(),
                        .device_tokens = bench->own_tokens_in(bench->device_mib()),
                        .host_tokens = bench->own_tokens_in(bench->host_mib())};
  std::vector<Contender> contenders;
  for (const std::string& name : command.modes) {
    RAG_ASSIGN_OR_RETURN(const Mode mode, make_mode(name, sizes));
    RAG_ASSIGN_OR_RETURN(Contender contender, bench->ragcache(name, mode.flags));
    RAG_ASSIGN_OR_RETURN(contender.predicted_prefill_seconds, bench->predict(mode.cache));
    contender.learns = mode.cache.reuses;
    contenders.push_back(std::move(contender));
  }
  ExperimentReport report =
      bench->report(str_cat("RAGCache's modes on ", bench->material().workload.name));
  report.ratios = {"none", "gpu-lru"};
  RAG_RETURN_IF_ERROR(run_and_report(contenders,
                                     requests_of(bench->material(), command.experiment.top_k),
                                     bench->experiment(command.modes.front()), report));
  bench->done();
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
