#include "services/retrieval/app.h"

#include <array>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/log/log.h"
#include "common/model/model_files.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "common/store/file.h"
#include "common/strings.h"
#include "services/retrieval/corpora.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/service.h"
#include "services/retrieval/shard/local_shard.h"
#include "services/retrieval/shard/remote_shard.h"
#include "services/retrieval/shard/shard_service.h"

namespace ragcache::retrieval {
namespace {

using Endpoints = std::vector<std::vector<ReplicaEndpoint>>;

constexpr Duration kStopGrace = std::chrono::seconds(2);
constexpr Duration kShardPatience = std::chrono::seconds(15);

std::string folder_name(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// "a,b;c": shard 0 has the replicas a and b, shard 1 has c.
absl::StatusOr<Endpoints> remote_shards(const std::string& shards) {
  if (shards.empty()) return absl::InvalidArgumentError("shards: is empty, role=router needs it");
  Endpoints endpoints;
  for (const std::string& replicas : split(shards, ';')) {
    std::vector<ReplicaEndpoint>& of_shard = endpoints.emplace_back();
    for (const std::string& address : split(replicas, ',')) {
      if (address.empty()) {
        return absl::InvalidArgumentError(
            str_cat("shards: '", shards,
                    "' has an empty address; write host:port, replicas of a "
                    "shard with ',' between, shards with ';' between"));
      }
      of_shard.push_back({address, std::make_shared<RemoteShard>(address)});
    }
  }
  return endpoints;
}

absl::StatusOr<IndexOptions> index_options(const Config& config, uint32_t dimension) {
  RAG_ASSIGN_OR_RETURN(const IndexOptions::Kind kind, index_kind_from_name(config.index));
  const IndexOptions options = {.kind = kind,
                                .dimension = dimension,
                                .ivf_lists = config.ivf_lists,
                                .ivf_probes = config.ivf_probes,
                                .pq_subvectors = config.pq_subvectors,
                                .pq_bits = config.pq_bits,
                                .refine_factor = config.refine_factor,
                                .hnsw_m = config.hnsw_m,
                                .ef_construction = config.ef_construction,
                                .ef_search = config.ef_search};
  RAG_RETURN_IF_ERROR(check_index_options(options));
  return options;
}

}  // namespace

// In the order they are made; each uses only those before it. Of a shard only its own, the pool and
// the server are there.
struct App::Parts {
  ~Parts() {
    if (search_pool != nullptr) search_pool->join();  // its work uses what is made after it
  }

  metrics::Registry registry;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<boost::asio::thread_pool> search_pool;
  std::vector<std::shared_ptr<LocalShard>> shards;
  std::unique_ptr<ShardService> shard_service;
  std::unique_ptr<Embedder> embedder;
  std::unique_ptr<Corpora> corpora;
  std::unique_ptr<Service> service;
  std::unique_ptr<RpcServer> server;

  absl::Status open_shard(const LocalShard::Options& options);
  absl::Status open_corpora(const Config& config, Endpoints endpoints);
  absl::Status listen(const std::string& address, grpc::Service& service);
};

absl::Status App::Parts::open_shard(const LocalShard::Options& options) {
  RAG_ASSIGN_OR_RETURN(shards.emplace_back(), LocalShard::open(options, *search_pool));
  return absl::OkStatus();
}

absl::Status App::Parts::open_corpora(const Config& config, Endpoints endpoints) {
  const std::string folder = config.state_dir + "/retrieval";
  RAG_RETURN_IF_ERROR(make_writable_folder(folder));
  RAG_ASSIGN_OR_RETURN(const auto model, ModelFiles::open(config.model));
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<const PromptFormat> format,
                       model->prompt_format(config.chat_template));
  RAG_ASSIGN_OR_RETURN(embedder, Embedder::load(config.embedding_model, config.embedding_threads));
  RAG_ASSIGN_OR_RETURN(const IndexOptions index, index_options(config, embedder->dimension()));
  const Corpora::Options options = {
      .index = index,
      .chunk = {.max_tokens = config.chunk_tokens, .overlap_tokens = config.chunk_overlap_tokens},
      // One for each search thread, each writer's lookups, changes for shards, and training.
      .readers = static_cast<int>(config.retrieval_threads) + 4,
      .shard_timeout = std::chrono::milliseconds(config.shard_timeout_ms)};
  RAG_ASSIGN_OR_RETURN(corpora, Corpora::open(folder, options, std::move(format), *embedder,
                                              std::move(endpoints), *search_pool, *registry));
  service = std::make_unique<Service>(*corpora, *embedder, *metrics,
                                      folder_name(config.embedding_model), *search_pool);
  return absl::OkStatus();
}

absl::Status App::Parts::listen(const std::string& address, grpc::Service& of_role) {
  const std::array<grpc::Service*, 1> services = {&of_role};
  RAG_ASSIGN_OR_RETURN(server, RpcServer::start(address, services));
  return absl::OkStatus();
}

App::App(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)), address_(parts_->server->address()) {}

App::~App() { stop(); }

absl::StatusOr<std::unique_ptr<App>> App::start(Config config, metrics::Registry registry) {
  const TimePoint started = steady_now();
  auto parts = std::make_unique<Parts>();
  parts->registry = std::move(registry);
  parts->search_pool = std::make_unique<boost::asio::thread_pool>(config.retrieval_threads);
  if (config.role == "shard") {
    if (config.shard_index >= config.shard_count) {
      return absl::InvalidArgumentError(
          str_cat("shard_index: ", config.shard_index,
                  ", must be less than shard_count=", config.shard_count));
    }
    RAG_RETURN_IF_ERROR(parts->open_shard({.folder = config.state_dir + "/shard",
                                           .shard = config.shard_index,
                                           .shards = config.shard_count}));
    parts->shard_service = std::make_unique<ShardService>(*parts->shards[0]);
    RAG_RETURN_IF_ERROR(parts->listen(config.listen, *parts->shard_service));
    log::info("shard listens", {{"address", parts->server->address()},
                                {"shard", config.shard_index},
                                {"shards", config.shard_count},
                                {"vectors", parts->shards[0]->vectors()}});
    return std::unique_ptr<App>(new App(std::move(parts)));
  }

  if (config.model.empty() || config.embedding_model.empty()) {
    return absl::InvalidArgumentError(str_cat(config.model.empty() ? "model" : "embedding_model",
                                              ": is empty, role=", config.role, " needs it"));
  }
  RAG_RETURN_IF_ERROR(check_chunk_settings(
      {.chunk_tokens = config.chunk_tokens, .chunk_overlap_tokens = config.chunk_overlap_tokens}));
  parts->metrics = std::make_unique<Metrics>(*parts->registry);
  Endpoints endpoints;
  if (config.role == "router") {
    RAG_ASSIGN_OR_RETURN(endpoints, remote_shards(config.shards));
  } else {
    for (uint32_t shard = 0; shard < config.local_shards; ++shard) {
      const std::string name = str_cat("shard-", shard, "-of-", config.local_shards);
      RAG_RETURN_IF_ERROR(parts->open_shard({.folder = config.state_dir + "/retrieval/" + name,
                                             .shard = shard,
                                             .shards = config.local_shards,
                                             .replace_foreign = true}));
      endpoints.push_back({{name, parts->shards.back()}});
    }
  }
  RAG_RETURN_IF_ERROR(parts->open_corpora(config, std::move(endpoints)));
  if (config.role == "all") {
    // Its shards are its own: what holds them up, such as a full disk, is to be put right here.
    RAG_RETURN_IF_ERROR(parts->corpora->router().wait_until_ready(kShardPatience));
  }
  RAG_RETURN_IF_ERROR(parts->listen(config.listen, *parts->service));
  log::info("retrieval listens", {{"address", parts->server->address()},
                                  {"corpora", parts->corpora->list().size()},
                                  {"documents", parts->corpora->store().document_count()},
                                  {"seconds", to_seconds(steady_now() - started)}});
  return std::unique_ptr<App>(new App(std::move(parts)));
}

void App::stop() {
  if (parts_ == nullptr) return;
  parts_->server->stop(kStopGrace);
  parts_->search_pool->join();
  parts_->service.reset();
  parts_->corpora.reset();
  for (const std::shared_ptr<LocalShard>& shard : parts_->shards) shard->save();
  parts_.reset();
}

const std::string& App::address() const { return address_; }

absl::Status App::ready() const {
  if (parts_->corpora != nullptr) return parts_->corpora->router().ready();
  return parts_->shards[0]->is_bound()
             ? absl::OkStatus()
             : absl::UnavailableError("no router has connected to the shard yet");
}

void App::set_serving(bool serving) { parts_->server->set_serving(serving); }

}  // namespace ragcache::retrieval
