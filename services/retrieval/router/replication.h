#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/retrieval/documents/document.h"
#include "services/retrieval/shard/shard.h"

namespace ragcache::retrieval {

struct ReplicaId {
  uint32_t shard = 0;
  uint32_t replica = 0;

  auto operator<=>(const ReplicaId&) const = default;
};

struct ReplicaTask {
  enum class Kind {
    kCreate,  // the index is missing
    kDrop,    // nobody searches it any more, or it has to begin anew
    kPush,    // the changes after `position`
  };
  Kind kind = Kind::kPush;
  IndexKey key;
  LogPosition position;
};

// Decides what each replica needs next, when a commit is acknowledged, and whom a search may ask.
//
// The sequences of a corpus: up to `committed` the store has it, up to `acknowledged` its writers
// have been told so. A search asks only replicas that have all that was acknowledged when it began.
// A commit is acknowledged once a connected replica of each shard has it; a shard that has none is
// waited for until give_up().
//
// A corpus has one generation of its index, or two while the newer one is filled: then searches use
// the older, until the newer has on every shard what was acknowledged.
//
// No I/O, clock or thread. Owner: ReplicationActor.
class Replication {
 public:
  using Ticket = uint64_t;

  // replicas[i]: of shard i. REQUIRES: at least one shard, and one replica of each.
  explicit Replication(std::span<const uint32_t> replicas);

  // Everything up to `sequence` counts as acknowledged. `generations`: one or two, older first.
  void open_corpus(int64_t corpus, std::vector<uint64_t> generations, uint64_t sequence);
  void close_corpus(int64_t corpus);
  // REQUIRES: the corpus is open and has one generation.
  void add_generation(int64_t corpus, uint64_t generation);
  bool is_open(int64_t corpus) const { return corpora_.contains(corpus); }

  // `ticket` comes back from advance() when the commit is acknowledged. A corpus that is closed
  // acknowledges at once.
  void committed(int64_t corpus, uint64_t sequence, Ticket ticket);
  // Shards without a connected replica are no longer waited for.
  void give_up(Ticket ticket);

  void connected(ReplicaId replica, std::span<const IndexState> indexes);
  void disconnected(ReplicaId replica);
  // It was late, and is asked last until it says something again.
  void suspected(ReplicaId replica) { at(replica).suspect = true; }
  // After kCreate and kPush.
  void updated(ReplicaId replica, const IndexState& index);
  // After kDrop, or when the log no longer has what the index needs: then it begins anew.
  void dropped(ReplicaId replica, const IndexKey& key);

  // None if the replica has all that there is, or is not connected. Tasks of a replica's indexes
  // take turns, so that filling one does not hold up the others.
  std::optional<ReplicaTask> next_task(ReplicaId replica);

  struct Advance {
    std::vector<Ticket> acknowledged;
    std::vector<IndexKey> retired;  // generations that a newer one has replaced
  };
  // What the latest events have brought about.
  Advance advance();

  struct Candidates {
    IndexKey key;
    uint64_t min_sequence = 0;
    std::vector<std::vector<uint32_t>> replicas;  // of each shard, in the order to ask them
  };
  // Whom a search may ask that wants `min_sequence` and all that is acknowledged. None if a shard
  // has no such replica. REQUIRES: is_open(corpus).
  std::optional<Candidates> candidates(int64_t corpus, uint64_t min_sequence);

  // Whether a replica of the shard has all that is acknowledged, of every corpus; which one.
  std::optional<uint32_t> serving_replica(uint32_t shard) const;
  bool is_connected(ReplicaId replica) const { return at(replica).connected; }
  // Vectors that searches of all corpora use.
  uint64_t vectors(ReplicaId replica) const;
  // Sequences committed that the replica lacks, of the corpus where it lacks most.
  uint64_t lag(ReplicaId replica) const;
  // The generation that searches use. REQUIRES: is_open(corpus).
  uint64_t serving_generation(int64_t corpus) const { return corpora_.at(corpus).generations[0]; }
  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  uint32_t replicas(uint32_t shard) const { return static_cast<uint32_t>(shards_[shard].size()); }

 private:
  struct Corpus {
    std::vector<uint64_t> generations;
    uint64_t committed = 0;
    uint64_t acknowledged = 0;
  };
  struct Replica {
    bool connected = false;
    bool suspect = false;
    std::map<IndexKey, IndexState> indexes;
    std::optional<IndexKey> last_pushed;
  };
  struct Commit {
    int64_t corpus = 0;
    uint64_t sequence = 0;
    bool gave_up = false;
  };

  Replica& at(ReplicaId id) { return shards_[id.shard][id.replica]; }
  const Replica& at(ReplicaId id) const { return shards_[id.shard][id.replica]; }
  static bool has(const Replica& replica, const IndexKey& key, uint64_t sequence);
  bool is_known(const IndexKey& key) const;
  bool needs_push(const IndexState& index) const;
  bool is_done(const Commit& commit) const;
  bool every_shard_has(const IndexKey& key, uint64_t sequence) const;

  std::vector<std::vector<Replica>> shards_;
  std::map<int64_t, Corpus> corpora_;
  std::map<Ticket, Commit> commits_;  // not acknowledged; by age
  uint32_t turn_ = 0;                 // of the replicas, in being asked first
};

}  // namespace ragcache::retrieval
