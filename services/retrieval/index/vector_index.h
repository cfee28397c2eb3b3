#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace faiss {
struct IOWriter;
}

namespace ragcache::retrieval {

struct VectorHit {
  float score;  // inner product: the cosine, vectors being normalised
  int64_t id;
  // What chose the vector among all others. Differs from `score` where compressed vectors are
  // searched and the best of them scored anew by their originals.
  float candidate_score;

  bool operator==(const VectorHit&) const = default;
};

// The best vectors of an index, or of a part of one, before the last step of a search. That step is
// best_hits(); it gives the same result for the candidates of one index as for those of its parts
// together, if the parts share their trained state.
struct Candidates {
  std::vector<VectorHit> hits;  // in no order
  size_t limit = 0;             // the best so many by candidate_score compete for the k places
};

// Decides which vectors a search may return. Asked during the scan, from the searching thread.
class IdFilter {
 public:
  virtual ~IdFilter() = default;
  virtual bool allows(int64_t id) const = 0;
};

// Nearest vectors by inner product. Ids are the caller's, each used once.
//
// Any thread. Searches run beside each other; add() and remove() wait for those under way and hold
// up later ones for as long as they write. A search takes one thread, the caller's.
class VectorIndex {
 public:
  // Hits that score like the last are all returned, up to this many beyond, so that the caller can
  // order ties by a key that the index does not know.
  static constexpr size_t kTiesMax = 1024;

  virtual ~VectorIndex() = default;

  // vectors: [ids.size(), dimension]. REQUIRES: no id is in the index.
  virtual absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) = 0;
  // How many of `ids` were there.
  virtual absl::StatusOr<size_t> remove(std::span<const int64_t> ids) = 0;
  // What best_hits() needs to find the k best of those that `filter` allows; nullptr allows all.
  // query: [dimension]. REQUIRES: k > 0.
  absl::StatusOr<Candidates> candidates(std::span<const float> query, size_t k,
                                        const IdFilter* filter) const;
  // The k best and those that tie with the last of them; best first, ties by id. Fewer than k only
  // if the index (its probed lists, for the ivf kinds) holds fewer that `filter` allows.
  absl::StatusOr<std::vector<VectorHit>> search(std::span<const float> query, size_t k,
                                                const IdFilter* filter = nullptr) const;

  size_t size() const;
  std::vector<int64_t> ids() const;  // ascending
  // exact, ivf_flat, ivf_pq, ivf_sq8 or hnsw.
  std::string_view kind() const { return kind_; }
  // What the index occupies, tables of ids included.
  size_t memory_bytes() const;
  // Whether so much was removed but is still in the way that the index should be built anew.
  virtual bool needs_compaction() const { return false; }
  // What the kind's read() takes.
  absl::Status write(faiss::IOWriter& writer) const;

 protected:
  VectorIndex(std::string_view kind, uint32_t dimension) : kind_(kind), dimension_(dimension) {}

  // The k best that `filter` allows, in any order; fewer only if there are fewer. REQUIRES of this
  // and all below: the caller holds a lock; k > 0.
  virtual void scan(std::span<const float> query, size_t k, const IdFilter* filter,
                    std::vector<VectorHit>& hits) const = 0;
  // Gives hits their final scores.
  virtual void rescore(std::span<const float>, std::span<VectorHit>) const {}
  // How many times k candidates compete.
  virtual size_t refine_factor() const { return 1; }
  virtual size_t size_locked() const = 0;
  virtual void append_ids(std::vector<int64_t>& ids) const = 0;
  virtual size_t memory_bytes_locked() const = 0;
  virtual void write_locked(faiss::IOWriter& writer) const = 0;

  std::shared_lock<std::shared_mutex> lock_to_read() const;
  std::unique_lock<std::shared_mutex> lock_to_write();

  uint32_t dimension() const { return dimension_; }

 private:
  const std::string_view kind_;
  const uint32_t dimension_;

  // Everybody passes the gate, and a writer waits in it: a stream of searches, each overlapping the
  // next, cannot starve an ingest.
  mutable std::mutex gate_;
  mutable std::shared_mutex mutex_;
};

// The last step of a search, over the candidates of one index or of all parts of one. Independent
// of their order, as ties are all kept: the best `limit` by candidate_score, then the k best of
// these by score. REQUIRES: k > 0.
std::vector<VectorHit> best_hits(Candidates candidates, size_t k);

}  // namespace ragcache::retrieval
