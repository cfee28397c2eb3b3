#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/hash.h"
#include "services/retrieval/filter/id_set.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/vector_index.h"

// What a router and its shards say to each other. A shard holds the vectors of its part of every
// corpus and knows no texts; the router's document store is the truth, and its change log is
// replayed to the shards.
namespace ragcache::retrieval {

// Names one index of a corpus. Generations are drawn at random and never used again, so that
// what a shard has under a key was made by the spec that the router has for it.
struct IndexKey {
  int64_t corpus = 0;
  uint64_t generation = 0;

  auto operator<=>(const IndexKey&) const = default;
};

// How the index of a generation is made: equal on all shards, which is why their results together
// are those of one index. `trained` is what train_index() gave; empty for kinds that are not
// trained, and for the exact scan that the others begin as.
struct IndexSpec {
  Digest embedding_model = {};  // that the vectors are of
  IndexOptions options;
  std::string trained;
};

// How far an index has come in the change log of its corpus. It equals the corpus as it was at
// `applied` only where applied >= floor: the log leaves out vectors that were removed since, so
// what is read of it in several batches is whole with the batch that reaches the log's end as it
// was when the first was read.
struct IndexState {
  IndexKey key;
  uint64_t applied = 0;
  uint64_t floor = 0;   // the furthest end of the log that a batch was read at
  uint64_t origin = 0;  // the end of the log that the first batch was read at
  uint64_t vectors = 0;
  bool wasteful = false;  // so much of it was removed that it should be built anew

  bool has(uint64_t sequence) const { return applied >= sequence && applied >= floor; }
};

// Who is who. A shard that holds vectors of another store or another part refuses.
struct ShardBinding {
  Digest store_id = {};
  uint32_t shard = 0;
  uint32_t shards = 1;

  bool operator==(const ShardBinding&) const = default;
};

// The changes of a corpus after one sequence up to another that belong to the shard.
struct ChangeBatch {
  IndexKey key;
  uint64_t after = 0;
  uint64_t upto = 0;
  uint64_t end = 0;  // of the log when this was read
  std::vector<int64_t> added;
  std::vector<float> vectors;  // [added.size(), dimension]
  std::vector<int64_t> removed;
};

// FAILED_PRECONDITION unless the batch is the next one of the index.
absl::Status check_follows(const IndexState& index, const ChangeBatch& batch);
// What the state is when the batch is applied, but for the number of vectors.
void advance(IndexState& index, const ChangeBatch& batch);

struct ShardQuery {
  IndexKey key;
  uint64_t min_sequence = 0;
  std::vector<float> query;  // [dimension]
  size_t k = 0;
  std::shared_ptr<const IdSet> allowed;  // null: all vectors
};

// FAILED_PRECONDITION unless the index has what the query wants.
absl::Status check_has(const IndexState& index, const ShardQuery& query);

struct ShardHits {
  Candidates candidates;
  uint64_t sequence = 0;  // the state of the corpus that they are of
};

// One replica of a shard, here or elsewhere.
//
// Any thread. Each call ends by calling `done` once, on any thread, perhaps before the call
// returns. UNAVAILABLE and DEADLINE_EXCEEDED leave open whether something was done.
class Shard {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;

  virtual ~Shard() = default;

  // What the shard has. FAILED_PRECONDITION if it belongs to another store or place; names both
  // sides.
  virtual void bind(const ShardBinding& binding, Duration timeout,
                    Done<std::vector<IndexState>> done) = 0;
  // Makes an empty index, instead of one of the same key.
  virtual void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
                      Done<IndexState> done) = 0;
  virtual void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) = 0;
  // FAILED_PRECONDITION if the index is not at batch.after; nothing is done then. NOT_FOUND: there
  // is no such index.
  virtual void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) = 0;
  // FAILED_PRECONDITION if the index does not have query->min_sequence.
  virtual void search(std::shared_ptr<const ShardQuery> query, Duration timeout,
                      std::stop_token stop, Done<ShardHits> done) = 0;
};

}  // namespace ragcache::retrieval
