#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "common/actor/actor.h"
#include "services/retrieval/router/messages.h"
#include "services/retrieval/router/metrics.h"
#include "services/retrieval/router/store_view.h"

namespace ragcache::retrieval {

// The vectors that a search may find. Fits what shards have of the corpus if that is neither before
// `from` nor after `upto`.
struct Selection {
  std::shared_ptr<const IdSet> allowed;
  uint64_t from = 0;
  uint64_t upto = 0;
};

struct SearchQuery {
  int64_t corpus = 0;
  std::vector<float> vector;  // [dimension]
  size_t k = 0;
  Duration timeout{};  // of all
  // Gives a selection of now, later and on any thread. Null: all vectors may be found.
  std::function<void(Shard::Done<Selection>)> select;
};

struct FoundDocument {
  DocumentRecord document;
  float score = 0;
};

// Best first, ties by id; fewer than k only if the corpus has fewer.
struct SearchDone {
  absl::StatusOr<std::vector<FoundDocument>> found;
};

// One search: asks a replica of each shard, another one if that fails or is late, merges, and
// fetches the documents.
//
// Each shard answers with the exact state of its part at some moment not before the search began.
// A hit whose document has since been replaced or erased is told by the store not having it: then
// the search is made again on shards that have the change, so that it neither shows the old version
// nor misses the new one.
class SearchActor {
 public:
  // Ways through the above before the search gives up.
  static constexpr int kRoundsMax = 16;

  struct Dependencies {
    Address<FindRoutes, ReplicaFailed, ReplicaLate> replication;
    StoreView& store;
    std::shared_ptr<ShardMetrics> metrics;
    // After so long another replica is asked, if there is one; also how long a search waits for
    // shards that have no replica which is up to date.
    Duration shard_timeout;
  };

  SearchActor(std::shared_ptr<const Dependencies> dependencies, SearchQuery query,
              Address<SearchDone> reply, ActorRef<SearchActor> self);

  struct Start {};
  void handle(Start start, ActorContext& context);
  // Ends the search, and what shards do for it. `reply` gets CANCELLED if it has had nothing yet.
  struct Cancel {};
  void handle(Cancel cancel, ActorContext& context);

  void handle(RoutesFound routes, ActorContext& context);
  // What follows, the actor sends to itself.
  struct Selected {
    absl::StatusOr<Selection> selection;
  };
  void handle(Selected selected, ActorContext& context);
  struct ShardAnswered {
    int round = 0;
    size_t shard = 0;
    size_t attempt = 0;
    absl::StatusOr<ShardHits> hits;
  };
  void handle(ShardAnswered answered, ActorContext& context);
  struct ShardLate {
    int round = 0;
    size_t shard = 0;
    size_t attempt = 0;
  };
  void handle(ShardLate late, ActorContext& context);
  struct DocumentsFound {
    absl::StatusOr<StoreView::Documents> documents;
  };
  void handle(DocumentsFound found, ActorContext& context);
  struct TimedOut {};
  void handle(TimedOut timed_out, ActorContext& context);

 private:
  struct Part {
    size_t attempt = 0;  // which of the routes is being asked
    TimePoint asked_at;
    std::stop_source stop;
    std::optional<Candidates> candidates;
  };

  void begin_round(uint64_t min_sequence, ActorContext& context);
  void find_routes(ActorContext& context);
  void ask(size_t shard, ActorContext& context);
  void fail_attempt(size_t shard, absl::Status status, ActorContext& context);
  void merge_parts();
  void finish(absl::StatusOr<std::vector<FoundDocument>> found, ActorContext& context);

  const std::shared_ptr<const Dependencies> dependencies_;
  const SearchQuery query_;
  const Address<SearchDone> reply_;
  const ActorRef<SearchActor> self_;

  TimePoint deadline_;
  int round_ = 0;
  uint64_t min_sequence_ = 0;
  std::optional<Selection> selection_;
  RoutesFound routes_;
  std::shared_ptr<const ShardQuery> shard_query_;
  std::vector<Part> parts_;
  std::vector<VectorHit> hits_;
  absl::Status last_failure_;  // of a shard, in case time runs out
};

}  // namespace ragcache::retrieval
