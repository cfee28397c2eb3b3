#include "loadgen/experiment/workbench.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "common/limits.h"
#include "common/status.h"
#include "common/strings.h"
#include "kernels/kv_layout/kv_layout.h"
#include "loadgen/experiment/server_process.h"
#include "loadgen/policy/profile.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/text_table.h"
#include "loadgen/run/rag_server.h"
#include "loadgen/workload/skew.h"
#include "services/controller/config.h"

namespace ragcache::loadgen {
namespace {

namespace fs = std::filesystem;

constexpr Duration kReadyTimeout = std::chrono::minutes(5);
// Four times what the worker allows itself.
constexpr Duration kProfileTimeout = std::chrono::minutes(4);
constexpr const char* kNever = "86400";  // seconds
// Other servers queue all that come, and so do ours.
constexpr const char* kUnlimited = "1000000";
// At least; more where a load may have more requests open.
constexpr uint32_t kConnections = 8192;
// The most that --timeout can be: it is the load that gives an answer up.
constexpr const char* kAnswerTimeoutMs = "86400000";
constexpr const char* kShared = "/dev/shm";
constexpr const char* kArenaPrefix = "ragcache-loadgen-";

// A tier for this share of a working set, in whole MiB.
uint64_t tier_mib(double share, uint64_t tokens, uint64_t bytes_per_token) {
  return static_cast<uint64_t>(share * static_cast<double>(tokens * bytes_per_token)) >> 20;
}

double mean_size(const std::vector<std::vector<uint32_t>>& lists) {
  size_t sum = 0;
  for (const std::vector<uint32_t>& list : lists) sum += list.size();
  return static_cast<double>(sum) / static_cast<double>(std::max<size_t>(1, lists.size()));
}

// What others that were killed left behind takes memory.
void remove_stale_arenas() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kShared, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kArenaPrefix)) continue;
    const int pid = std::atoi(name.c_str() + std::strlen(kArenaPrefix));
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), error);
  }
}

absl::StatusOr<std::unique_ptr<ServerProcess>> start(const Contender& server,
                                                     Interrupts& interrupts) {
  RAG_ASSIGN_OR_RETURN(
      auto process,
      ServerProcess::start({.command = server.command, .log = server.log, .interrupted = [&] {
                              return interrupts.check();
                            }}));
  RAG_RETURN_IF_ERROR(process->wait_ready(server.url + server.ready_path, kReadyTimeout));
  return process;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Workbench>> Workbench::create(const ExperimentCommand& command) {
  WorkloadOptions options = command.workload;
  RAG_ASSIGN_OR_RETURN(options.count_tokens, token_counter(command.model));
  options.max_requests = command.warm_up + command.requests;
  options.zipf.top_k = command.top_k;
  std::optional<Progress> progress;
  options.corpus.on_progress = [&progress](uint64_t done, uint64_t all) {
    if (!progress) progress.emplace("passages tokenised", all);
    progress->show(done);
  };
  RAG_ASSIGN_OR_RETURN(Workload workload, read_workload(options));
  if (command.arrivals.process == "recorded" && !workload.has_times) {
    return absl::InvalidArgumentError(
        str_cat("--arrivals: is recorded, but ", workload.name, " has no times"));
  }
  RAG_RETURN_IF_ERROR(check_size(workload, command.warm_up, command.requests));
  if (!workload.retrieval && workload.documents.empty()) {
    return absl::InvalidArgumentError(
        str_cat("--workload: ", workload.name,
                " has no documents, so that there is nothing to keep of them"));
  }
  RAG_ASSIGN_OR_RETURN(Material material,
                       prepare_material(std::move(workload), command.top_k, command.embedding_model,
                                        command.model, controller::Config().system_prompt));
  std::unique_ptr<Workbench> bench(new Workbench(command, std::move(material)));
  if (bench->device_mib_ == 0) {
    return absl::InvalidArgumentError(
        str_cat("--device-share: ", command.device_share, " of the working set, ",
                bench->material_.working_set_tokens, " tokens, is less than a MiB"));
  }
  remove_stale_arenas();
  if (command.work_dir.empty()) {
    std::string pattern = (fs::temp_directory_path() / "ragcache-loadgen-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::UnavailableError(str_cat("cannot make a folder like ", pattern));
    }
    bench->folder_ = pattern;
  } else {
    std::error_code error;
    fs::create_directories(command.work_dir, error);
    if (error) {
      return absl::InvalidArgumentError(str_cat("--work-dir: ", error.message()));
    }
    bench->folder_ = command.work_dir;
  }
  return bench;
}

Workbench::Workbench(const ExperimentCommand& command, Material material)
    : command_(command),
      material_(std::move(material)),
      device_mib_(tier_mib(command.device_share, material_.working_set_tokens,
                           material_.kv_bytes_per_token)),
      host_mib_(
          tier_mib(command.host_share, material_.working_set_tokens, material_.kv_bytes_per_token)),
      threads_(command.threads > 0 ? command.threads : static_cast<uint32_t>(environment().cores)),
      program_(command.ragcache.empty() ? beside_this_program("ragcache") : command.ragcache),
      arena_(str_cat(kShared, "/", kArenaPrefix, getpid(), ".arena")) {}

Workbench::~Workbench() {
  std::error_code ignored;
  fs::remove(arena_, ignored);
  if (!command_.work_dir.empty() || folder_.empty()) return;
  if (keeps_folder_) {
    std::fprintf(stderr, "logs and documents are in %s\n", folder_.c_str());
  } else {
    fs::remove_all(folder_, ignored);
  }
}

absl::StatusOr<Contender> Workbench::ragcache(const std::string& name,
                                              const std::vector<std::string>& flags) const {
  RAG_ASSIGN_OR_RETURN(const uint16_t port, free_port());
  Contender contender{.name = name, .log = log_of(name)};
  const std::string listen = str_cat("127.0.0.1:", port);
  contender.command = {program_,
                       "serve",
                       "--model",
                       command_.model,
                       "--embedding-model",
                       command_.embedding_model,
                       "--state-dir",
                       state_dir(),
                       "--listen",
                       listen,
                       "--host-arena",
                       arena_,
                       "--chunk-tokens",
                       "0",
                       "--index",
                       "exact",
                       "--threads",
                       std::to_string(threads_),
                       "--activations",
                       command_.activations,
                       "--kv-dtype",
                       command_.kv_dtype,
                       "--profile-after-s",
                       kNever,
                       "--max-requests",
                       kUnlimited,
                       "--max-waiting",
                       kUnlimited,
                       "--max-top-k",
                       std::to_string(kMaxRequestDocuments),
                       "--max-connections",
                       std::to_string(std::max(kConnections, command_.load.max_in_flight)),
                       "--answer-timeout-ms",
                       kAnswerTimeoutMs};
  // Without it the controller would weigh and choose by times that nobody measured.
  if (!command_.profile.empty()) {
    contender.command.push_back("--profile");
    contender.command.push_back(command_.profile);
  }
  contender.command.insert(contender.command.end(), flags.begin(), flags.end());
  contender.url = "http://" + listen;
  contender.ready_path = "/readyz";
  contender.remove_first = {arena_};  // or the host tier would be found again
  contender.endpoint.url = contender.url;
  return contender;
}

// Another model, thread count, arithmetic or set of documents is another state.
std::string Workbench::state_dir() const {
  return str_cat(folder_, "/state-", to_hex(std::span(material_.digest).first(4)), "-", threads_,
                 command_.activations == "fp32" ? "" : "-" + command_.activations,
                 command_.kv_dtype == "fp16" ? "" : "-kv-" + command_.kv_dtype);
}

uint64_t Workbench::own_tokens_in(uint64_t mib) const {
  const kernels::KvLayout ours{.n_layers = 1,
                               .n_kv_heads = 1,
                               .head_dim = static_cast<int64_t>(material_.head_dim),
                               .type = kernels::kv_type_named(command_.kv_dtype).value()};
  kernels::KvLayout halves = ours;
  halves.type = kernels::KvType::kF16;
  return tokens_in(mib) * static_cast<uint64_t>(halves.block_bytes()) /
         static_cast<uint64_t>(ours.block_bytes());
}

absl::Status Workbench::prepare() {
  const std::vector<std::string> one_tier{"--host-memory-mib", "0"};
  if (command_.rounds > 0 && !material_.workload.documents.empty()) {
    RAG_ASSIGN_OR_RETURN(const Contender server, ragcache("prepare", one_tier));
    RAG_ASSIGN_OR_RETURN(const auto process, start(server, interrupts_));
    RAG_RETURN_IF_ERROR(RagServer(server.url, "").ingest(material_.workload.documents, [this] {
      return interrupts_.check();
    }));
  }
  std::string profile = command_.profile;
  if (profile.empty()) {
    profile = state_dir() + "/prefill_profile.json";
    if (!fs::exists(profile)) {
      RAG_ASSIGN_OR_RETURN(const Contender server, ragcache("prepare", {"--host-memory-mib", "0",
                                                                        "--profile-after-s", "0"}));
      RAG_ASSIGN_OR_RETURN(const auto process, start(server, interrupts_));
      std::fprintf(stderr, "measuring prefill times, for less than a minute\n");
      RAG_RETURN_IF_ERROR(process->wait_until([&profile] { return fs::exists(profile); },
                                              "to measure prefill times", kProfileTimeout));
    }
  }
  RAG_ASSIGN_OR_RETURN(prefill_cost_, read_profile(profile));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Workbench::predict(const CacheModel& cache) const {
  RAG_ASSIGN_OR_RETURN(std::vector<double> seconds,
                       prefill_seconds(material_, cache, *prefill_cost_));
  seconds.erase(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(command_.warm_up));
  return seconds;
}

ExperimentOptions Workbench::experiment(const std::string& baseline) {
  ExperimentOptions options{.warm_up = command_.warm_up,
                            .requests = command_.requests,
                            .rate_shares = command_.rates,
                            .baseline = baseline,
                            .capacity_rps = command_.capacity,
                            .capacity_requests = command_.capacity_requests,
                            .rounds = command_.rounds,
                            .slo_factor = command_.slo_factor,
                            .load = command_.load};
  Workload counted{.name = material_.workload.name, .has_times = material_.workload.has_times};
  counted.requests.assign(
      material_.workload.requests.begin() + static_cast<ptrdiff_t>(command_.warm_up),
      material_.workload.requests.end());
  const double first_s = counted.requests.empty() ? 0 : counted.requests.front().recorded_s;
  for (WorkloadRequest& request : counted.requests) request.recorded_s -= first_s;
  options.interrupted = [this] { return interrupts_.check(); };
  options.arrivals = [counted = std::move(counted), how = command_.arrivals,
                      seed = command_.workload.seed](double rate) mutable {
    how.rate = rate;
    how.seed = seed;
    // A recording is played as fast as makes that rate.
    if (counted.has_times && counted.requests.size() > 1) {
      const double span = counted.requests.back().recorded_s - counted.requests.front().recorded_s;
      how.speedup = rate * span / static_cast<double>(counted.requests.size() - 1);
    }
    return arrivals(counted, how);
  };
  return options;
}

ExperimentReport Workbench::report(const std::string& title) const {
  ExperimentReport report{.title = title,
                          .workload = material_.workload.name,
                          .json = command_.json,
                          .plots = command_.plots,
                          .html = command_.report};
  const auto fact = [&report](const char* name, const std::string& value) {
    report.facts.emplace_back(name, value);
  };
  std::vector<uint32_t> tokens;
  for (const TraceDocument& document : material_.trace.documents) tokens.push_back(document.tokens);
  const Skew skew = skew_of(material_.documents, tokens, command_.warm_up, command_.workload.seed);
  fact("documents", std::to_string(tokens.size()));
  fact("documents of a request", fixed(mean_size(material_.documents), 2));
  fact("warm-up, requests", str_cat(command_.warm_up, ", ", command_.requests));
  if (const uint64_t left_out = material_.workload.left_out; left_out > 0) {
    fact("requests left out, too long", std::to_string(left_out));
  }
  fact("seed", std::to_string(command_.workload.seed));
  fact("arrivals", command_.arrivals.process);
  fact("threads of each server", std::to_string(threads_));
  fact("RAGCache's activations", command_.activations);
  fact("RAGCache's KV", command_.kv_dtype);
  fact("working set, tokens", std::to_string(material_.working_set_tokens));
  fact("device tier, MiB", std::to_string(device_mib_));
  fact("host tier, MiB", std::to_string(host_mib_));
  fact("requests for the 3 % most wanted documents (uniform draws)",
       str_cat(fixed(skew.requests.top_share, 2), " (", fixed(skew.uniform.top_share, 2), ")"));
  fact("tokens that an unbounded cache would hold (uniform draws)",
       str_cat(fixed(skew.requests.warm_cached_share, 2), " (",
               fixed(skew.uniform.warm_cached_share, 2), ")"));
  return report;
}

}  // namespace ragcache::loadgen
