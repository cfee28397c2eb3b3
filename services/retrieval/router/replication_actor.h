#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/actor/actor.h"
#include "services/retrieval/router/messages.h"
#include "services/retrieval/router/metrics.h"
#include "services/retrieval/router/replication.h"
#include "services/retrieval/router/store_view.h"

namespace ragcache::retrieval {

// Keeps the replicas of all shards up to the document store, and knows whom a search may ask.
// Does what Replication decides: one change of a replica is under way at a time. Beside that, each
// is asked at intervals what it has: whether it lives at all, and whether it is what it was. One
// that fails is bound anew, with growing pauses; what it then says it has is what counts.
class ReplicationActor {
 public:
  // A commit waits so long for shards that have no connected replica.
  static constexpr Duration kCommitPatience = std::chrono::seconds(5);
  static constexpr Duration kHeartbeat = std::chrono::seconds(1);
  // A replica that does not say within this what it has is lost.
  static constexpr Duration kBindTimeout = std::chrono::seconds(3);
  // So is one that does not make a change; it may first have to save an index.
  static constexpr Duration kChangeTimeout = std::chrono::seconds(15);
  static constexpr Duration kPauseMin = std::chrono::milliseconds(50);
  static constexpr Duration kPauseMax = std::chrono::seconds(2);

  using Observer = Address<ClusterStatus, GenerationServing, GenerationWasteful>;

  // shards[i]: replicas of shard i. `store` outlives the actor and its calls.
  ReplicationActor(std::vector<std::vector<ReplicaEndpoint>> shards, const Digest& store_id,
                   StoreView& store, std::shared_ptr<ShardMetrics> metrics, Observer observer,
                   ActorRef<ReplicationActor> self);

  struct Start {};
  void handle(Start start, ActorContext& context);
  void handle(OpenCorpus open, ActorContext& context);
  void handle(CloseCorpus close, ActorContext& context);
  void handle(AddGeneration add, ActorContext& context);
  void handle(Committed committed, ActorContext& context);
  void handle(FindRoutes find, ActorContext& context);
  void handle(ReplicaFailed failed, ActorContext& context);
  void handle(ReplicaLate late, ActorContext& context);

  // What follows, the actor sends to itself. What belongs to an earlier session of its replica
  // comes to nothing.
  struct Bind {
    ReplicaId id;
    uint64_t session = 0;
  };
  void handle(Bind bind, ActorContext& context);
  struct Bound {
    ReplicaId id;
    uint64_t session = 0;
    uint64_t changes = 0;  // begun when the replica was asked
    absl::StatusOr<std::vector<IndexState>> indexes;
  };
  void handle(Bound bound, ActorContext& context);
  struct ChangesRead {
    ReplicaId id;
    uint64_t session = 0;
    IndexKey key;
    absl::StatusOr<ChangeBatch> batch;
  };
  void handle(ChangesRead read, ActorContext& context);
  struct TaskDone {
    ReplicaId id;
    uint64_t session = 0;
    ReplicaTask task;
    absl::StatusOr<IndexState> index;
  };
  void handle(TaskDone done, ActorContext& context);
  struct CommitExpired {
    Replication::Ticket ticket = 0;
  };
  void handle(CommitExpired expired, ActorContext& context);
  struct RoutesExpired {
    uint64_t number = 0;
  };
  void handle(RoutesExpired expired, ActorContext& context);

 private:
  struct Replica {
    ReplicaEndpoint endpoint;
    uint64_t session = 0;   // grows whenever the replica is lost
    bool changing = false;  // a change is under way
    uint64_t changes = 0;   // begun so far
    Duration pause = kPauseMin;
    std::string reason;  // it was lost for, until it is well again
  };

  Replica& at(ReplicaId id) { return shards_[id.shard][id.replica]; }
  void lose(ReplicaId id, const absl::Status& status, ActorContext& context);
  void settle();
  void start_task(ReplicaId id);
  bool answer(const FindRoutes& find);
  std::string missing() const;
  void publish_status();

  std::vector<std::vector<Replica>> shards_;
  const Digest store_id_;
  StoreView& store_;
  const std::shared_ptr<ShardMetrics> metrics_;
  const Observer observer_;
  const ActorRef<ReplicationActor> self_;

  Replication replication_;
  std::map<IndexKey, std::shared_ptr<const IndexSpec>> specs_;  // of open corpora
  uint64_t next_number_ = 1;                                    // of tickets and waiting searches
  std::map<Replication::Ticket, Address<CommitAcknowledged>> commits_;
  std::map<uint64_t, FindRoutes> waiting_;  // bounded by the service's calls
  ClusterStatus status_;
};

}  // namespace ragcache::retrieval
