#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/actor/actor.h"
#include "common/clock.h"
#include "services/retrieval/router/replication.h"
#include "services/retrieval/shard/shard.h"

// What the router's actors and those who use them say to one another.
namespace ragcache::retrieval {

// One replica as the router knows it. `name` is its address, for people.
struct ReplicaEndpoint {
  std::string name;
  std::shared_ptr<Shard> shard;
};

struct Generation {
  uint64_t number = 0;
  std::shared_ptr<const IndexSpec> spec;
};

// To ReplicationActor: the corpus is there, with everything up to `sequence` acknowledged.
// generations: one or two, older first.
struct OpenCorpus {
  int64_t corpus = 0;
  std::vector<Generation> generations;
  uint64_t sequence = 0;
};

struct CloseCorpus {
  int64_t corpus = 0;
};

// To ReplicationActor: fill another generation of the index, and search it once every shard has it.
struct AddGeneration {
  int64_t corpus = 0;
  Generation generation;
};

struct CommitAcknowledged {};

// To ReplicationActor: the store has the corpus up to `sequence`. Answered when searches find it.
struct Committed {
  int64_t corpus = 0;
  uint64_t sequence = 0;
  Address<CommitAcknowledged> reply;
};

struct Route {
  ReplicaId id;
  uint64_t session = 0;
  std::shared_ptr<Shard> shard;
};

struct RoutesFound {
  absl::Status status;
  IndexKey key;
  std::shared_ptr<const IndexSpec> spec;
  uint64_t min_sequence = 0;
  std::vector<std::vector<Route>> shards;  // of each, those to ask in turn
};

// To ReplicationActor: whom to ask. Answered when every shard has a replica that is up to date, or
// with UNAVAILABLE when `patience` has passed.
struct FindRoutes {
  int64_t corpus = 0;
  uint64_t min_sequence = 0;
  Duration patience{};
  Address<RoutesFound> reply;
};

// To ReplicationActor: a replica failed a search. It is asked again once it has said anew what it
// has.
struct ReplicaFailed {
  ReplicaId id;
  uint64_t session = 0;
  absl::Status status;
};

// To ReplicationActor: a replica has not answered a search yet.
struct ReplicaLate {
  ReplicaId id;
  uint64_t session = 0;
};

struct ShardStatus {
  std::string address;  // of one replica, serving if any is
  bool serving = false;
  uint64_t vectors = 0;
  std::string reason;  // why not serving

  bool operator==(const ShardStatus&) const = default;
};

// From ReplicationActor, at each change.
struct ClusterStatus {
  std::vector<ShardStatus> shards;

  bool operator==(const ClusterStatus&) const = default;
};

// From ReplicationActor: searches use the newer of two generations now.
struct GenerationServing {
  int64_t corpus = 0;
  uint64_t generation = 0;
};

// From ReplicationActor, at each change of such an index: it should be built anew.
struct GenerationWasteful {
  int64_t corpus = 0;
  uint64_t generation = 0;
};

}  // namespace ragcache::retrieval
