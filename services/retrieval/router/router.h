#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/actor/thread_runtime.h"
#include "services/retrieval/router/generations.h"
#include "services/retrieval/router/replication_actor.h"
#include "services/retrieval/router/search_actor.h"
#include "services/retrieval/router/store_reader.h"

namespace ragcache::retrieval {

// The shards of all corpora as one index that follows the document store.
//
// Any thread. Nothing may be called, nor be under way, when it goes.
class Router {
 public:
  struct Options {
    std::string folder;  // for how corpora are indexed
    IndexOptions index;
    Digest embedding_model = {};
    Duration shard_timeout = std::chrono::seconds(5);
  };

  // shards[i]: replicas of shard i. `store` and `search_pool` outlive the router.
  static absl::StatusOr<std::unique_ptr<Router>> create(
      const Options& options, std::vector<std::vector<ReplicaEndpoint>> shards,
      DocumentStore& store, boost::asio::thread_pool& search_pool, prometheus::Registry& registry);
  ~Router();

  // The shards are to follow the corpus. Errors name the file that cannot be written.
  absl::Status open_corpus(CorpusNumber corpus);
  // Connects to the shards. What they have of corpora that are not open by now is dropped.
  void start() { replication_.send(ReplicationActor::Start{}); }
  void close_corpus(CorpusNumber corpus);

  // The store has a commit, up to `sequence`. Returns when searches find it, or when a shard that
  // has no replica has been waited for long enough: searches fail until it has caught up.
  void committed(CorpusNumber corpus, uint64_t sequence);
  // After an ingest: has the corpus trained if its size calls for it. Returns at once.
  void settle(CorpusNumber corpus) { generations_->settle(corpus); }

  using SearchCallback = std::function<void(absl::StatusOr<std::vector<FoundDocument>>)>;
  // Calls `done` once, unless the router goes; soon, with CANCELLED, if `stop` asks for it.
  void search(SearchQuery query, std::stop_token stop, SearchCallback done);

  ClusterStatus status() const;
  // UNAVAILABLE names a shard that has no replica with all there is, and why.
  absl::Status ready() const;
  // Until every shard has a replica with all there is. The error of ready() if for `patience` no
  // shard has come further.
  absl::Status wait_until_ready(Duration patience) const;
  std::string index_kind(CorpusNumber corpus) const { return generations_->kind(corpus); }

 private:
  Router(DocumentStore& store, boost::asio::thread_pool& search_pool)
      : store_(store), reader_(store, search_pool) {}

  DocumentStore& store_;

  mutable std::mutex status_mutex_;
  mutable std::condition_variable status_changed_;
  ClusterStatus status_;  // guarded by status_mutex_

  StoreReader reader_;
  std::shared_ptr<SearchActor::Dependencies> dependencies_;
  ActorRef<ReplicationActor> replication_;
  std::unique_ptr<Generations> generations_;
  ThreadRuntime runtime_{2};
};

}  // namespace ragcache::retrieval
