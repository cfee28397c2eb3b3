#include "services/retrieval/router/router.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/store/file.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

absl::Status check_serving(const ClusterStatus& status) {
  if (status.shards.empty()) return absl::UnavailableError("the shards are not connected yet");
  for (size_t i = 0; i < status.shards.size(); ++i) {
    if (status.shards[i].serving) continue;
    return absl::UnavailableError(
        str_cat("shard ", i, " has no replica that is up to date: ", status.shards[i].reason));
  }
  return absl::OkStatus();
}

uint64_t count_vectors(const ClusterStatus& status) {
  uint64_t vectors = 0;
  for (const ShardStatus& shard : status.shards) vectors += shard.vectors;
  return vectors;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Router>> Router::create(
    const Options& options, std::vector<std::vector<ReplicaEndpoint>> shards, DocumentStore& store,
    boost::asio::thread_pool& search_pool, prometheus::Registry& registry) {
  RAG_RETURN_IF_ERROR(make_writable_folder(options.folder));
  std::unique_ptr<Router> owned(new Router(store, search_pool));
  Router* const router = owned.get();
  std::vector<uint32_t> replicas;
  for (const auto& shard : shards) replicas.push_back(static_cast<uint32_t>(shard.size()));
  auto metrics = std::make_shared<ShardMetrics>(registry, replicas);
  auto observer = ReplicationActor::Observer::of_functions(
      [router](ClusterStatus status) {
        const std::lock_guard lock(router->status_mutex_);
        router->status_ = std::move(status);
        router->status_changed_.notify_all();
      },
      [router](GenerationServing serving) {
        router->generations_->replaced(serving.corpus, serving.generation);
      },
      [router](GenerationWasteful wasteful) {
        router->generations_->wasteful(wasteful.corpus, wasteful.generation);
      });
  router->replication_ = router->runtime_.spawn<ReplicationActor>(
      std::move(shards), store.store_id(), router->reader_, metrics, std::move(observer));
  router->generations_ =
      std::make_unique<Generations>(options.folder, options.index, options.embedding_model, store,
                                    [replication = router->replication_](AddGeneration added) {
                                      replication.send(std::move(added));
                                    });
  router->dependencies_ = std::make_shared<SearchActor::Dependencies>(SearchActor::Dependencies{
      router->replication_, router->reader_, std::move(metrics), options.shard_timeout});
  return owned;
}

Router::~Router() {
  runtime_.stop();  // actors call generations_
  generations_.reset();
}

absl::Status Router::open_corpus(CorpusNumber corpus) {
  RAG_ASSIGN_OR_RETURN(std::vector<Generation> generations, generations_->open(corpus));
  replication_.send(OpenCorpus{corpus, std::move(generations), store_.last_sequence(corpus)});
  generations_->settle(corpus);
  return absl::OkStatus();
}

void Router::close_corpus(CorpusNumber corpus) {
  generations_->close(corpus);
  replication_.send(CloseCorpus{corpus});
}

void Router::committed(CorpusNumber corpus, uint64_t sequence) {
  auto acknowledged = std::make_shared<std::promise<void>>();
  std::future<void> future = acknowledged->get_future();
  replication_.send(Committed{corpus, sequence,
                              Address<CommitAcknowledged>::of_functions(
                                  [acknowledged = std::move(acknowledged)](CommitAcknowledged) {
                                    acknowledged->set_value();
                                  })});
  future.wait();
}

void Router::search(SearchQuery query, std::stop_token stop, SearchCallback done) {
  // Kept by the search's end, which may come while this function still runs.
  using StopWatch = std::optional<std::stop_callback<std::function<void()>>>;
  auto watch = std::make_shared<StopWatch>();
  const ActorRef<SearchActor> search = runtime_.spawn<SearchActor>(
      std::shared_ptr<const SearchActor::Dependencies>(dependencies_), std::move(query),
      Address<SearchDone>::of_functions(
          [watch, done = std::move(done)](SearchDone result) { done(std::move(result.found)); }));
  watch->emplace(std::move(stop), [search] { search.send(SearchActor::Cancel{}); });
  search.send(SearchActor::Start{});
}

ClusterStatus Router::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

absl::Status Router::ready() const { return check_serving(status()); }

absl::Status Router::wait_until_ready(Duration patience) const {
  std::unique_lock lock(status_mutex_);
  uint64_t most = 0;
  const auto has_come_further = [&] {
    return check_serving(status_).ok() || count_vectors(status_) > most;
  };
  while (status_changed_.wait_for(lock, patience, has_come_further)) {
    if (check_serving(status_).ok()) return absl::OkStatus();
    most = count_vectors(status_);
  }
  return check_serving(status_);
}

}  // namespace ragcache::retrieval
