#include "services/worker/app.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/random.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "services/worker/engine/engine_actor.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/service.h"

namespace ragcache::worker {
namespace {

std::string bytes_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

}  // namespace

struct App::Parts {
  std::unique_ptr<kernels::ThreadPool> threads;
  std::unique_ptr<LlamaModel> model;
  metrics::Registry registry;
  std::unique_ptr<Metrics> metrics;
  // The service posts to the engine and the engine delivers to the service: the server stops
  // first, then the engine's thread.
  std::unique_ptr<EngineActor> engine;
  std::unique_ptr<Service> service;
  std::unique_ptr<RpcServer> server;
};

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

App::~App() { stop(); }

absl::StatusOr<std::unique_ptr<App>> App::start(const Config& config, metrics::Registry registry) {
  const TimePoint begin = steady_now();
  auto parts = std::make_unique<Parts>();
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(config.model));
  const int threads = config.threads > 0 ? static_cast<int>(config.threads)
                                         : kernels::ThreadPool::default_threads();
  parts->threads = std::make_unique<kernels::ThreadPool>(threads);
  RAG_ASSIGN_OR_RETURN(LlamaWeights weights, load_llama_weights(*files, *parts->threads));
  parts->model = std::make_unique<LlamaModel>(
      std::move(weights), config.max_batch_tokens, *parts->threads,
      config.kv_dtype == "fp32" ? kernels::KvType::kF32 : kernels::KvType::kF16);

  const kernels::KvLayout layout = parts->model->kv_layout();
  const uint64_t block_bytes = static_cast<uint64_t>(layout.block_bytes());
  const uint64_t blocks = (uint64_t{config.kv_memory_mib} << 20) / block_bytes;
  if (blocks == 0 || blocks > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("kv_memory_mib is ", config.kv_memory_mib, ": ",
                                                   blocks, " blocks of ", block_bytes,
                                                   " bytes, which this model cannot work with"));
  }
  RAG_ASSIGN_OR_RETURN(BlockPool pool, BlockPool::create(layout, static_cast<uint32_t>(blocks)));

  v1::GetInfoResponse info;
  info.set_model_name(parts->model->config().name);
  info.set_model_fingerprint(bytes_of(parts->model->fingerprint()));
  info.set_block_tokens(kernels::KvLayout::kBlockTokens);
  info.set_total_blocks(pool.total());
  info.set_block_bytes(block_bytes);
  info.set_context_tokens(static_cast<uint32_t>(parts->model->config().context_tokens));
  info.set_worker_epoch(random_bits());

  parts->registry = std::move(registry);
  parts->metrics = std::make_unique<Metrics>(*parts->registry);
  Parts& at = *parts;
  parts->service = std::make_unique<Service>(
      info, [&at](Command command) { at.engine->post(std::move(command)); });
  parts->engine = std::make_unique<EngineActor>(
      std::make_unique<Engine>(*parts->model, std::move(pool),
                               Engine::Limits{config.max_batch_tokens,
                                              std::chrono::milliseconds(config.max_iteration_ms)},
                               *parts->metrics),
      [&at](std::vector<Event> events) { at.service->deliver(std::move(events)); });
  grpc::Service* const services[] = {parts->service.get()};
  RAG_ASSIGN_OR_RETURN(parts->server, RpcServer::start(config.listen, services));
  log::info("worker is ready", {{"address", parts->server->address()},
                                {"model", info.model_name()},
                                {"threads", threads},
                                {"kv_blocks", info.total_blocks()},
                                {"seconds", to_seconds(steady_now() - begin)}});
  return std::unique_ptr<App>(new App(std::move(parts)));
}

void App::stop() {
  parts_->service->shut_down();
  parts_->server->stop();
  parts_->engine->stop();
}

const std::string& App::address() const { return parts_->server->address(); }

}  // namespace ragcache::worker
