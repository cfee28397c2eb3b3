#include "loadgen/peers/peers_command.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
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

// OpenVINO GenAI's cache on a CPU is sized in blocks of so many tokens.
constexpr uint64_t kOpenVinoBlockTokens = 32;
// Bytes that each head's quantised key, and its value, has besides: a scale and a zero point.
constexpr uint64_t kOpenVinoScaleBytes = 2 * sizeof(float);

constexpr const char* kRagcache = "ragcache";
constexpr const char* kLlama = "llama.cpp";
constexpr const char* kLlamaSlots = "llama.cpp-slots";
constexpr const char* kOpenVino = "openvino";
constexpr const char* kOpenVinoF16 = "openvino-f16";
constexpr const char* kOwnEngines[] = {kRagcache, kLlama, kLlamaSlots, kOpenVino, kOpenVinoF16};

std::vector<Request> requests_of(const Material& material) {
  std::vector<Request> requests;
  for (size_t i = 0; i < material.plans.size(); ++i) {
    TokenPrompt prompt{.segments = material.plans[i]->segment_tokens,
                       .tail = material.plans[i]->tail};
    for (const uint32_t place : material.documents[i]) {
      prompt.documents.push_back(material.workload.documents[place].id);
    }
    requests.push_back(
        {.prompt = std::move(prompt), .max_tokens = material.workload.requests[i].max_tokens});
  }
  return requests;
}

// Tokens of the longest request, its answer included.
uint64_t longest_request(const Material& material) {
  uint64_t longest = 0;
  for (size_t i = 0; i < material.plans.size(); ++i) {
    const uint64_t tokens =
        material.plans[i]->prompt_tokens() + material.workload.requests[i].max_tokens;
    longest = std::max(longest, tokens);
  }
  return longest;
}

bool is_openvino(std::string_view name) { return name == kOpenVino || name == kOpenVinoF16; }
// What its keys and values are: bytes by itself, halves as RAGCache's.
const char* openvino_precision(std::string_view name) {
  return name == kOpenVinoF16 ? "f16" : "u8";
}

bool contains(const auto& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Those of --engines, then those of --url that are not among them.
absl::StatusOr<std::vector<std::string>> engines_of(const PeersCommand& command,
                                                    const std::vector<UrlPeer>& running) {
  std::vector<std::string> known(std::begin(kOwnEngines), std::end(kOwnEngines));
  std::vector<std::string> engines = command.engines;
  for (const UrlPeer& peer : running) {
    if (contains(kOwnEngines, peer.name)) {
      return absl::InvalidArgumentError(
          str_cat("--url: has \"", peer.name, "\", the name of an engine that is started"));
    }
    known.push_back(peer.name);
    if (!contains(engines, peer.name)) engines.push_back(peer.name);
  }
  for (const std::string& name : engines) {
    if (contains(known, name)) continue;
    std::string all = known.front();
    for (size_t i = 1; i < known.size(); ++i) all += str_cat(", ", known[i]);
    return absl::InvalidArgumentError(
        str_cat("--engines: has \"", name, "\", must be of ", all, " and the names of --url"));
  }
  return engines;
}

std::string openvino_script(const PeersCommand& command) {
  return command.openvino_server.empty() ? beside_this_program("openvino_server.py")
                                         : command.openvino_server;
}

class Engines {
 public:
  Engines(const PeersCommand& command, const Workbench& bench, const std::vector<UrlPeer>& running)
      : command_(command), bench_(bench), running_(running) {}

  // REQUIRES: the name is one of engines_of().
  absl::StatusOr<Contender> make(const std::string& name) const {
    if (name == kRagcache) return ragcache();
    if (name == kLlama || name == kLlamaSlots) return llama_cpp(name);
    if (is_openvino(name)) return openvino(name);
    const auto peer = std::find_if(running_.begin(), running_.end(),
                                   [&name](const UrlPeer& each) { return each.name == name; });
    return Contender{.name = name, .url = peer->endpoint.url, .endpoint = peer->endpoint};
  }

  // What each was given, in words.
  std::string memory(const std::vector<std::string>& names) const {
    std::string all;
    for (const std::string& name : names) {
      if (!all.empty()) all += "; ";
      all += str_cat(name, ": ", memory(name));
    }
    return all;
  }

 private:
  std::string memory(const std::string& name) const {
    if (name == kRagcache) {
      return str_cat(bench_.device_mib(), " and ", bench_.host_mib(), " MiB");
    }
    if (name == kLlama || name == kLlamaSlots) {
      return str_cat("a context of ", context_tokens(), " tokens for ", llama_slots(),
                     " requests and ", bench_.host_mib(), " MiB of prompt cache");
    }
    if (is_openvino(name)) {
      return str_cat(openvino_blocks(name), " blocks of ", kOpenVinoBlockTokens, " tokens in ",
                     openvino_precision(name));
    }
    return "as it was started";
  }

  absl::StatusOr<Contender> ragcache() const {
    RAG_ASSIGN_OR_RETURN(
        const Mode mode,
        make_mode("ragcache", {.device_mib = bench_.device_mib(),
                               .host_mib = bench_.host_mib(),
                               .device_tokens = bench_.own_tokens_in(bench_.device_mib()),
                               .host_tokens = bench_.own_tokens_in(bench_.host_mib())}));
    RAG_ASSIGN_OR_RETURN(Contender contender, bench_.ragcache("ragcache", mode.flags));
    RAG_ASSIGN_OR_RETURN(contender.predicted_prefill_seconds, bench_.predict(mode.cache));
    return contender;
  }

  absl::StatusOr<Contender> llama_cpp(const std::string& name) const {
    const std::string program =
        command_.llama_server.empty() ? "llama-server" : command_.llama_server;
    RAG_ASSIGN_OR_RETURN(Contender contender, child(name, "/health"));
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
                         std::to_string(llama_slots()),
                         "--kv-unified",
                         "--cache-ram",
                         std::to_string(bench_.host_mib()),
                         "-t",
                         std::to_string(bench_.threads())};
    // By default a slot that is idle is saved to the host and emptied when a request comes.
    if (name == kLlamaSlots) contender.command.push_back("--no-cache-idle-slots");
    contender.endpoint.extra = R"({"cache_prompt": true, "ignore_eos": true})";
    return contender;
  }

  absl::StatusOr<Contender> openvino(const std::string& name) const {
    RAG_ASSIGN_OR_RETURN(Contender contender, child(name, "/health"));
    contender.command = {"python3",        openvino_script(command_),
                         "--model",        command_.experiment.model,
                         "--port",         port_of(contender),
                         "--threads",      std::to_string(bench_.threads()),
                         "--max-seqs",     std::to_string(kSlots),
                         "--kv-precision", openvino_precision(name),
                         "--kv-blocks",    std::to_string(openvino_blocks(name))};
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

  uint64_t context_tokens() const { return bench_.tokens_in(bench_.device_mib()); }
  // It fails requests that its context has no room for, where the others let them wait; so it gets
  // no more of them at once than surely fit.
  uint64_t llama_slots() const {
    return std::clamp<uint64_t>(context_tokens() / longest_request(bench_.material()), 1, kSlots);
  }
  // For the bytes of both tiers; no block at all would mean no bound.
  uint64_t openvino_blocks(const std::string& name) const {
    uint64_t tokens = bench_.tokens_in(bench_.device_mib() + bench_.host_mib());
    if (name == kOpenVino) {
      const uint64_t head_dim = bench_.material().head_dim;
      tokens = tokens * sizeof(uint16_t) * head_dim / (head_dim + kOpenVinoScaleBytes);
    }
    return std::max<uint64_t>(1, tokens / kOpenVinoBlockTokens);
  }

  const PeersCommand& command_;
  const Workbench& bench_;
  const std::vector<UrlPeer>& running_;
};

}  // namespace

absl::Status peers(const PeersCommand& command) {
  if (command.engines.empty()) return absl::InvalidArgumentError("--engines: names none");
  RAG_ASSIGN_OR_RETURN(const std::vector<UrlPeer> running, url_peers(command.url));
  RAG_ASSIGN_OR_RETURN(const std::vector<std::string> names, engines_of(command, running));
  const std::string baseline = command.baseline.empty() ? command.engines.back() : command.baseline;
  if (!contains(names, baseline)) {
    return absl::InvalidArgumentError(
        str_cat("--baseline: ", baseline, " is none of those compared"));
  }
  if (std::any_of(names.begin(), names.end(), is_openvino) &&
      !std::filesystem::exists(openvino_script(command))) {
    return absl::InvalidArgumentError(
        str_cat("--openvino-server: there is no ", openvino_script(command)));
  }
  RAG_ASSIGN_OR_RETURN(const auto bench, Workbench::create(command.experiment));
  RAG_RETURN_IF_ERROR(bench->prepare());
  const Engines engines(command, *bench, running);
  std::vector<Contender> contenders;
  for (const std::string& name : names) {
    RAG_ASSIGN_OR_RETURN(Contender contender, engines.make(name));
    contenders.push_back(std::move(contender));
  }
  ExperimentReport report =
      bench->report(str_cat("RAGCache beside other servers on ", bench->material().workload.name));
  report.kind = "engine";
  report.facts.emplace_back("memory for KV", engines.memory(names));
  for (const std::string& name : names) {
    if (name != kRagcache) report.ratios.push_back(name);
  }
  RAG_RETURN_IF_ERROR(run_and_report(contenders, requests_of(bench->material()),
                                     bench->experiment(baseline), report));
  bench->done();
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
