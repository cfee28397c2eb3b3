#include "loadgen/peers/peers_command.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/compare/mode.h"
#include "loadgen/experiment/server_process.h"
#include "loadgen/experiment/workbench.h"

namespace ragcache::loadgen {
namespace {

// As many requests as RAGCache runs at once.
constexpr int kSlots = 16;

std::vector<Request> requests_of(const Material& material) {
  std::vector<Request> requests;
  for (size_t i = 0; i < material.plans.size(); ++i) {
    requests.push_back({.prompt = TokenPrompt{.segments = material.plans[i]->segment_tokens,
                                              .tail = material.plans[i]->tail},
                        .max_tokens = material.workload.requests[i].max_tokens});
  }
  return requests;
}

class Engines {
 public:
  Engines(const PeersCommand& command, const Workbench& bench) : command_(command), bench_(bench) {
    for (const std::string& argument : command.urls) {
      const size_t equals = argument.find('=');
      if (equals != std::string::npos) {
        urls_[argument.substr(0, equals)] = argument.substr(equals + 1);
      }
    }
  }

  // REQUIRES: check(name) is OK.
  absl::StatusOr<Contender> make(const std::string& name) const {
    if (name == "ragcache") return ragcache();
    if (name == "llama.cpp") return llama_cpp();
    if (name == "openvino") return openvino();
    const std::string& url = urls_.at(name);
    Contender contender{.name = name, .url = url};
    contender.endpoint = {.url = url, .segments = false};
    return contender;
  }

  absl::Status check(const std::string& name) const {
    if (urls_.contains(name)) return absl::OkStatus();
    if (name == "ragcache" || name == "llama.cpp" || name == "openvino") return absl::OkStatus();
    return absl::InvalidArgumentError(
        str_cat("--engines: has \"", name,
                "\", must be of ragcache, llama.cpp, openvino and the names of --url"));
  }

  // What each was given, in words.
  std::string memory() const {
    return str_cat("ragcache: ", bench_.device_mib(), " and ", bench_.host_mib(),
                   " MiB; llama.cpp: a context of ", context_tokens(), " tokens and ",
                   bench_.host_mib(), " MiB of prompt cache; openvino: ", whole_gib(), " GiB");
  }

 private:
  absl::StatusOr<Contender> ragcache() const {
    RAG_ASSIGN_OR_RETURN(const Mode mode,
                         make_mode("ragcache", {.device_mib = bench_.device_mib(),
                                                .host_mib = bench_.host_mib(),
                                                .tokens_per_mib = bench_.tokens_per_mib()}));
    RAG_ASSIGN_OR_RETURN(Contender contender, bench_.ragcache("ragcache", mode.flags));
    RAG_ASSIGN_OR_RETURN(contender.predicted_prefill_seconds, bench_.predict(mode.cache));
    return contender;
  }

  absl::StatusOr<Contender> llama_cpp() const {
    const std::string program =
        command_.llama_server.empty() ? "llama-server" : command_.llama_server;
    RAG_ASSIGN_OR_RETURN(Contender contender, child("llama.cpp", "/health"));
    contender.command = {program,
                         "-m",
                         command_.experiment.model,
                         "--port",
                         port_of(contender),
                         "-ngl",
                         "0",
                         "-c",
                         std::to_string(context_tokens()),
                         "-np",
                         std::to_string(kSlots),
                         "--kv-unified",
                         "--cache-ram",
                         std::to_string(bench_.host_mib())};
    if (command_.experiment.threads > 0) {
      contender.command.push_back("-t");
      contender.command.push_back(std::to_string(command_.experiment.threads));
    }
    contender.endpoint.extra = R"({"cache_prompt": true})";
    return contender;
  }

  absl::StatusOr<Contender> openvino() const {
    RAG_ASSIGN_OR_RETURN(Contender contender, child("openvino", "/health"));
    contender.command = {"python3",   command_.openvino_server,
                         "--model",   command_.experiment.model,
                         "--port",    port_of(contender),
                         "--threads", std::to_string(command_.experiment.threads),
                         "--kv-gib",  std::to_string(whole_gib())};
    if (!command_.openvino_path.empty()) {
      contender.environment = {{"PYTHONPATH", command_.openvino_path}};
    }
    return contender;
  }

  absl::StatusOr<Contender> child(const std::string& name, const std::string& ready_path) const {
    RAG_ASSIGN_OR_RETURN(const uint16_t port, free_port());
    Contender contender{.name = name,
                        .log = bench_.log_of(name),
                        .url = str_cat("http://127.0.0.1:", port),
                        .ready_path = ready_path};
    contender.endpoint = {.url = contender.url, .segments = false};
    return contender;
  }

  static std::string port_of(const Contender& contender) {
    return contender.url.substr(contender.url.rfind(':') + 1);
  }

  uint64_t context_tokens() const { return bench_.device_mib() * bench_.tokens_per_mib(); }
  // OpenVINO GenAI counts in whole ones; it gets no less than the others.
  uint64_t whole_gib() const { return (bench_.device_mib() + bench_.host_mib() + 1023) / 1024; }

  const PeersCommand& command_;
  const Workbench& bench_;
  std::map<std::string, std::string> urls_;
};

}  // namespace

absl::Status peers(const PeersCommand& command) {
  if (command.engines.empty()) return absl::InvalidArgumentError("--engines: names none");
  RAG_ASSIGN_OR_RETURN(const auto bench, Workbench::create(command.experiment));
  const Engines engines(command, *bench);
  for (const std::string& name : command.engines) RAG_RETURN_IF_ERROR(engines.check(name));
  RAG_RETURN_IF_ERROR(bench->prepare());
  std::vector<Contender> contenders;
  for (const std::string& name : command.engines) {
    RAG_ASSIGN_OR_RETURN(Contender contender, engines.make(name));
    contenders.push_back(std::move(contender));
  }
  const std::string baseline = command.baseline.empty() ? command.engines.back() : command.baseline;
  RAG_ASSIGN_OR_RETURN(
      const ExperimentResult result,
      run_experiment(contenders, requests_of(bench->material()), bench->experiment(baseline)));
  ExperimentReport report =
      bench->report(str_cat("RAGCache beside other servers on ", bench->material().workload.name));
  report.kind = "engine";
  report.facts.emplace_back("memory for KV", engines.memory());
  for (const std::string& name : command.engines) {
    if (name != "ragcache") report.ratios.push_back(name);
  }
  return write_experiment(report, result);
}

}  // namespace ragcache::loadgen
