#include "services/retrieval/app.h"

#include <array>
#include <filesystem>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/model/model_files.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "common/store/file.h"
#include "services/retrieval/corpora.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/service.h"

namespace ragcache::retrieval {
namespace {

constexpr Duration kStopGrace = std::chrono::seconds(2);

IndexOptions::Kind index_kind(const std::string& name) {
  if (name == "exact") return IndexOptions::Kind::kExact;
  if (name == "ivf_flat") return IndexOptions::Kind::kIvfFlat;
  RAG_CHECK(name == "auto");
  return IndexOptions::Kind::kAuto;
}

std::string folder_name(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

}  // namespace

// In the order they are made; each uses only those before it.
struct App::Parts {
  metrics::Registry registry;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<Embedder> embedder;
  std::unique_ptr<Corpora> corpora;
  std::unique_ptr<Service> service;
  std::unique_ptr<RpcServer> server;
};

App::App(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)), address_(parts_->server->address()) {}

App::~App() { stop(); }

absl::StatusOr<std::unique_ptr<App>> App::start(Config config, metrics::Registry registry) {
  const TimePoint started = steady_now();
  RAG_RETURN_IF_ERROR(check_chunk_settings(
      {.chunk_tokens = config.chunk_tokens, .chunk_overlap_tokens = config.chunk_overlap_tokens}));
  const std::string folder = config.state_dir + "/retrieval";
  RAG_RETURN_IF_ERROR(make_writable_folder(folder));
  RAG_ASSIGN_OR_RETURN(const auto model, ModelFiles::open(config.model));
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<const PromptFormat> format,
                       model->prompt_format(config.chat_template));

  auto parts = std::make_unique<Parts>();
  parts->registry = std::move(registry);
  parts->metrics = std::make_unique<Metrics>(*parts->registry);
  RAG_ASSIGN_OR_RETURN(parts->embedder, Embedder::load(config.embedding_model));
  const auto threads = static_cast<int>(config.retrieval_threads);
  const IndexOptions index = {.kind = index_kind(config.index),
                              .dimension = parts->embedder->dimension(),
                              .ivf_lists = config.ivf_lists,
                              .ivf_probes = config.ivf_probes};
  const Corpora::Options options = {
      .index = index,
      .chunk = {.max_tokens = config.chunk_tokens, .overlap_tokens = config.chunk_overlap_tokens},
      .readers = threads + 2};  // one for each search thread and for each writer's lookups
  RAG_ASSIGN_OR_RETURN(parts->corpora,
                       Corpora::open(folder, options, std::move(format), *parts->embedder));
  parts->service = std::make_unique<Service>(*parts->corpora, *parts->embedder, *parts->metrics,
                                             folder_name(config.embedding_model), threads);
  const std::array<grpc::Service*, 1> services = {parts->service.get()};
  RAG_ASSIGN_OR_RETURN(parts->server, RpcServer::start(config.listen, services));
  log::info("retrieval ready", {{"address", parts->server->address()},
                                {"corpora", parts->corpora->list().size()},
                                {"documents", parts->corpora->store().document_count()},
                                {"seconds", to_seconds(steady_now() - started)}});
  return std::unique_ptr<App>(new App(std::move(parts)));
}

void App::stop() {
  if (parts_ == nullptr) return;
  parts_->server->stop(kStopGrace);
  if (const absl::Status saved = parts_->corpora->save(); !saved.ok()) {
    // The next start makes up for it from the store.
    log::error("index not saved", {{"reason", std::string(saved.message())}});
  }
  parts_.reset();
}

const std::string& App::address() const { return address_; }

}  // namespace ragcache::retrieval
