#include "loadgen/run/run_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/report_file.h"
#include "loadgen/run/prompts.h"
#include "loadgen/run/rag_server.h"
#include "loadgen/run/run_report.h"
#include "loadgen/workload/token_counter.h"

namespace ragcache::loadgen {
namespace {

absl::StatusOr<Workload> read(const RunCommand& command) {
  if (command.requests == 0 && command.workload.name == "zipf") {
    return absl::InvalidArgumentError("--requests: is 0, must be at least 1 for zipf");
  }
  WorkloadOptions options = command.workload;
  options.seed = command.seed;
  options.zipf.top_k = command.top_k;
  options.max_requests = command.requests == 0 ? 0 : command.warm_up + command.requests;
  RAG_ASSIGN_OR_RETURN(options.count_tokens, token_counter(command.tokenizer));
  std::optional<Progress> progress;
  options.corpus.on_progress = [&](uint64_t done, uint64_t all) {
    if (!progress) progress.emplace("passages tokenised", all);
    progress->show(done);
  };
  RAG_ASSIGN_OR_RETURN(Workload workload, read_workload(options));
  if (command.requests > 0) {
    RAG_RETURN_IF_ERROR(check_size(workload, command.warm_up, command.requests));
  }
  if (workload.requests.size() <= command.warm_up) {
    return absl::InvalidArgumentError(str_cat("--warm-up: is ", command.warm_up,
                                              ", must be less than the workload's ",
                                              workload.requests.size(), " requests"));
  }
  return workload;
}

Retrieval retrieval_of(const RunCommand& command, const Workload& workload) {
  if (command.retrieval == "server") return Retrieval::kServer;
  if (command.retrieval == "before") return Retrieval::kBefore;
  return command.retrieval.empty() && workload.retrieval ? Retrieval::kServer : Retrieval::kNamed;
}

bool is_ragcache(const RunCommand& command) {
  return command.api.empty() ? command.retrieval != "before" : command.api == "ragcache";
}

// Where documents are added and found, if the load needs that.
absl::StatusOr<RagServer> rag_server(const RunCommand& command) {
  std::string url = command.search_endpoint;
  if (url.empty() && command.endpoint.url.starts_with("grpc://")) {
    return absl::InvalidArgumentError(
        "--search-endpoint: is missing, must be http://host:port of RAGCache: documents are added "
        "and found by HTTP");
  }
  if (url.empty()) url = command.endpoint.url;
  return RagServer(std::move(url), command.endpoint.api_key);
}

absl::StatusOr<Prompts> prepare(const RunCommand& command, const Workload& workload) {
  const Retrieval retrieval = retrieval_of(command, workload);
  const bool searches = workload.retrieval && retrieval != Retrieval::kServer;
  if (!searches && !command.ingest) {
    return make_prompts(workload, retrieval, command.top_k, nullptr);
  }
  RAG_ASSIGN_OR_RETURN(const RagServer server, rag_server(command));
  if (command.ingest) RAG_RETURN_IF_ERROR(server.ingest(workload.documents));
  Progress progress("questions searched", workload.requests.size());
  uint64_t done = 0;
  return make_prompts(workload, retrieval, command.top_k, [&](const std::string& query) {
    auto found = server.search(query, command.top_k);
    progress.show(++done);
    return found;
  });
}

double rate_of(const ArrivalOptions& options, const std::vector<Duration>& times) {
  if (options.process != "recorded") return options.rate;
  const double seconds = to_seconds(times.back() - times.front());
  return seconds > 0 ? static_cast<double>(times.size() - 1) / seconds : 0;
}

absl::Status write_reports(const RunCommand& command, const RunReport& report) {
  if (command.json != "-") std::fputs(to_text(report).c_str(), stdout);
  if (!command.json.empty()) {
    RAG_RETURN_IF_ERROR(write_report(command.json, to_json(report).dump(2) + "\n"));
  }
  if (!command.plots.empty()) {
    const std::string name = "run_" + report.workload;
    RAG_RETURN_IF_ERROR(write_chart(command.plots, name + "_latency", report.latencies));
    RAG_RETURN_IF_ERROR(write_chart(command.plots, name + "_over_time", report.over_time));
  }
  if (!command.report.empty()) RAG_RETURN_IF_ERROR(write_report(command.report, to_html(report)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ArrivalOptions> arrivals_of(const RunCommand& command, const Workload& workload) {
  ArrivalOptions options = command.arrivals;
  if (options.process.empty()) options.process = workload.has_times ? "recorded" : "poisson";
  const bool recorded = options.process == "recorded";
  if (recorded && workload.has_times && command.rate) {
    return absl::InvalidArgumentError(
        str_cat("--rate: is of arrivals that are drawn, those of ", workload.name,
                " are recorded: give --speedup instead, or --arrivals poisson or bursts with it"));
  }
  if (!recorded && command.speedup) {
    return absl::InvalidArgumentError(str_cat("--speedup: is of recorded arrivals, these are ",
                                              options.process, ": give --rate instead"));
  }
  options.rate = command.rate.value_or(options.rate);
  options.speedup = command.speedup.value_or(options.speedup);
  options.seed = command.seed;
  return options;
}

absl::Status run(const RunCommand& command) {
  RAG_ASSIGN_OR_RETURN(const Workload workload, read(command));
  RAG_ASSIGN_OR_RETURN(const ArrivalOptions arriving, arrivals_of(command, workload));
  RAG_ASSIGN_OR_RETURN(const std::vector<Duration> times, arrivals(workload, arriving));
  RAG_ASSIGN_OR_RETURN(Prompts prompts, prepare(command, workload));
  for (size_t i = 0; i < times.size(); ++i) prompts.requests[i].at = times[i];

  EndpointOptions endpoint = command.endpoint;
  endpoint.segments = is_ragcache(command);
  if (const double minutes = to_seconds(times.back()) / 60; minutes > 1) {
    std::fprintf(stderr, "the load takes %.0f min%s\n", minutes,
                 arriving.process == "recorded" ? "; --speedup shortens it" : "");
  }
  LoadOptions load = command.load;
  Progress progress("requests ended", prompts.requests.size());
  load.on_progress = [&progress](uint64_t, uint64_t ended, uint64_t) { progress.show(ended); };
  RAG_ASSIGN_OR_RETURN(const LoadResult result, run_load(endpoint, prompts.requests, load));

  RunReport report =
      make_run_report(workload, prompts.documents, result, command.warm_up, command.seed);
  report.endpoint = endpoint.url;
  report.arrivals = arriving.process;
  report.rate = rate_of(arriving, times);
  RAG_RETURN_IF_ERROR(write_reports(command, report));

  RAG_RETURN_IF_ERROR(result.status);
  return check_answered(report);
}

}  // namespace ragcache::loadgen
