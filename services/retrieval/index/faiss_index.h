#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/index/vector_index.h"

namespace faiss {
struct IOWriter;
}

namespace ragcache::retrieval {

// What the indexes of all kinds share: the lock, and the search that goes on until no tie is cut.
class FaissIndex : public VectorIndex {
 public:
  absl::StatusOr<Candidates> candidates(std::span<const float> query, size_t k,
                                        const IdFilter* filter) const final;
  size_t size() const final;
  std::vector<int64_t> ids() const final;
  std::string_view kind() const final { return kind_; }

  // What the index occupies, tables of ids included.
  size_t memory_bytes() const;
  // Whether so much was removed but is still in the way that the index should be built anew.
  virtual bool needs_compaction() const { return false; }
  // What the kind's read() takes.
  absl::Status write(faiss::IOWriter& writer) const;

 protected:
  FaissIndex(std::string_view kind, uint32_t dimension) : kind_(kind), dimension_(dimension) {}

  // The k best that `filter` allows, in any order; fewer only if there are fewer.
  // REQUIRES of this and all below: the caller holds a lock; k > 0.
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

  // Everybody passes the gate, and a writer waits in it: a stream of searches, each overlapping
  // the next, cannot starve an ingest.
  mutable std::mutex gate_;
  mutable std::shared_mutex mutex_;
};

}  // namespace ragcache::retrieval
