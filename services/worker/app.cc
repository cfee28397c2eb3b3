#include "services/worker/app.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/random.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "common/store/file.h"
#include "services/worker/engine/engine_actor.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/profile/profiler.h"
#include "services/worker/service.h"

namespace ragcache::worker {
namespace {

std::string bytes_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

// One file for each state folder: the name tells whose it is, the digest keeps folders apart.
std::string default_arena(const std::string& state_dir) {
  std::error_code error;
  const std::string folder = std::filesystem::absolute(state_dir, error).lexically_normal();
  return absl::StrCat("/dev/shm/ragcache-", to_hex(sha256(folder)).substr(0, 16));
}

Engine::Verify to_verify(const std::string& verify_kv) {
  if (verify_kv == "off") return Engine::Verify::kOff;
  return verify_kv == "first" ? Engine::Verify::kFirst : Engine::Verify::kAlways;
}

// Enough that a copy of them says how fast copies are.
constexpr uint64_t kRateBytes = 64 << 20;

struct HostTier {
  std::unique_ptr<HostArena> arena;
  std::unique_ptr<TransferActor> transfers;
  double load_bytes_per_second;
};

// `wake` is called when a transfer has ended.
absl::StatusOr<HostTier> start_host(const Config& config, const LlamaModel& model, BlockPool& pool,
                                    std::function<void()> wake) {
  const kernels::KvLayout layout = model.kv_layout();
  const auto block_bytes = static_cast<uint64_t>(layout.block_bytes());
  const uint64_t blocks = (uint64_t{config.host_memory_mib} << 20) / block_bytes;
  if (blocks == 0 || blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("host_memory_mib is ", config.host_memory_mib, ": ", blocks, " blocks of ",
                     block_bytes, " bytes, which this model cannot work with; 0 is no host tier"));
  }
  const auto open = [&](const std::string& path) {
    return HostArena::open(path, model.kv_fingerprint(), layout, static_cast<uint32_t>(blocks));
  };
  const auto open_default = [&]() -> absl::StatusOr<HostArena> {
    auto in_memory = open(default_arena(config.state_dir));
    if (!absl::IsResourceExhausted(in_memory.status())) return in_memory;
    // Containers often have next to nothing there.
    log::warn("the host tier lies in state_dir, where copies may cost writes to a disk",
              {{"reason", std::string(in_memory.status().message())}});
    return open(config.state_dir + "/kv.arena");
  };
  RAG_ASSIGN_OR_RETURN(HostArena arena,
                       config.host_arena.empty() ? open_default() : open(config.host_arena));
  HostTier tier{.arena = std::make_unique<HostArena>(std::move(arena))};
  const std::vector<int32_t> some =
      pool.take(std::clamp<uint64_t>(kRateBytes / block_bytes, 1, pool.total()));
  tier.load_bytes_per_second =
      measure_load_rate(layout, pool.memory(), some, *tier.arena, config.verify_kv == "always");
  pool.give_back(some);
  tier.transfers =
      std::make_unique<TransferActor>(Copier(layout, pool.memory(), *tier.arena), std::move(wake));
  return tier;
}

}  // namespace

struct App::Parts {
  std::unique_ptr<kernels::ThreadPool> threads;
  std::unique_ptr<LlamaModel> model;
  metrics::Registry registry;
  std::unique_ptr<Metrics> metrics;
  // The service posts to the engine and the engine delivers to the service.
  std::unique_ptr<HostArena> arena;
  std::unique_ptr<EngineActor> engine;
  std::unique_ptr<TransferActor> transfers;  // wakes the engine; stops after it, goes before it
  std::unique_ptr<Profiler> profiler;
  std::unique_ptr<Service> service;
  std::unique_ptr<RpcServer> server;
};

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

App::~App() { stop(); }

absl::StatusOr<std::unique_ptr<App>> App::start(const Config& config, metrics::Registry registry) {
  const TimePoint begin = steady_now();
  RAG_RETURN_IF_ERROR(make_writable_folder(config.state_dir));
  auto parts = std::make_unique<Parts>();
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(config.model));
  const int threads = config.threads > 0 ? static_cast<int>(config.threads)
                                         : kernels::ThreadPool::default_threads();
  parts->threads = std::make_unique<kernels::ThreadPool>(threads);
  RAG_ASSIGN_OR_RETURN(LlamaWeights weights, load_llama_weights(*files, *parts->threads));
  parts->model = std::make_unique<LlamaModel>(
      std::move(weights), config.max_batch_tokens, *parts->threads,
      kernels::kv_type_named(config.kv_dtype).value(),
      config.activations == "int8" ? Activations::kInt8 : Activations::kF32);

  const kernels::KvLayout layout = parts->model->kv_layout();
  const uint64_t block_bytes = static_cast<uint64_t>(layout.block_bytes());
  const uint64_t blocks = (uint64_t{config.kv_memory_mib} << 20) / block_bytes;
  if (blocks == 0 || blocks > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("kv_memory_mib is ", config.kv_memory_mib, ": ",
                                                   blocks, " blocks of ", block_bytes,
                                                   " bytes, which this model cannot work with"));
  }
  RAG_ASSIGN_OR_RETURN(BlockPool pool, BlockPool::create(layout, static_cast<uint32_t>(blocks)));

  parts->registry = std::move(registry);
  parts->metrics = std::make_unique<Metrics>(*parts->registry);
  Parts& at = *parts;
  std::optional<Engine::Host> host;
  if (config.host_memory_mib > 0) {
    RAG_ASSIGN_OR_RETURN(HostTier tier,
                         start_host(config, *parts->model, pool, [&at] { at.engine->wake(); }));
    parts->arena = std::move(tier.arena);
    parts->transfers = std::move(tier.transfers);
    host.emplace(Engine::Host{.arena = *parts->arena,
                              .transfers = *parts->transfers,
                              .verify = to_verify(config.verify_kv),
                              .load_bytes_per_second = tier.load_bytes_per_second});
  }

  v1::GetInfoResponse info;
  info.set_model_name(parts->model->config().name);
  info.set_model_fingerprint(bytes_of(parts->model->fingerprint()));
  info.set_block_tokens(kernels::KvLayout::kBlockTokens);
  info.set_total_blocks(pool.total());
  info.set_block_bytes(block_bytes);
  info.set_context_tokens(static_cast<uint32_t>(parts->model->config().context_tokens));
  info.set_worker_epoch(random_bits());

  if (host.has_value()) {
    info.set_host_blocks(host->arena.blocks());
    info.set_load_bytes_per_second(static_cast<uint64_t>(host->load_bytes_per_second));
  }

  const std::string profile = config.profile.empty()
                                  ? absl::StrCat(config.state_dir, "/prefill_profile.json")
                                  : config.profile;
  const uint64_t pool_tokens = uint64_t{pool.total()} * kernels::KvLayout::kBlockTokens;
  parts->profiler = std::make_unique<Profiler>(
      profile,
      ProfileKey{
          parts->model->fingerprint(),
          machine_name(threads, config.kv_dtype, config.activations, config.max_batch_tokens)},
      static_cast<uint32_t>(std::min<uint64_t>(info.context_tokens(), pool_tokens)),
      [&at](uint32_t cached_tokens, uint32_t new_tokens, Profiler::Answer answer) {
        at.engine->time_prefill(cached_tokens, new_tokens, std::move(answer));
      });
  parts->service = std::make_unique<Service>(
      info, [&at](Command command) { at.engine->post(std::move(command)); }, *parts->profiler);
  parts->engine = std::make_unique<EngineActor>(
      std::make_unique<Engine>(*parts->model, std::move(pool),
                               Engine::Limits{config.max_batch_tokens,
                                              std::chrono::milliseconds(config.max_iteration_ms)},
                               *parts->metrics, steady_now, host),
      [&at](std::vector<Event> events) { at.service->deliver(std::move(events)); },
      std::chrono::seconds(config.profile_after_s));
  grpc::Service* const services[] = {parts->service.get()};
  RAG_ASSIGN_OR_RETURN(parts->server, RpcServer::start(config.listen, services));
  log::info("worker is ready", {{"address", parts->server->address()},
                                {"model", info.model_name()},
                                {"threads", threads},
                                {"kv_blocks", info.total_blocks()},
                                {"host_blocks", info.host_blocks()},
                                {"load_mib_s", info.load_bytes_per_second() >> 20},
                                {"seconds", to_seconds(steady_now() - begin)}});
  return std::unique_ptr<App>(new App(std::move(parts)));
}

void App::stop() {
  parts_->service->shut_down();
  parts_->engine
      ->stop();  // ends a profile that waits for its turn, for which the server would wait
  parts_->server->stop();
  if (parts_->transfers != nullptr) parts_->transfers->stop();
}

const std::string& App::address() const { return parts_->server->address(); }

}  // namespace ragcache::worker
