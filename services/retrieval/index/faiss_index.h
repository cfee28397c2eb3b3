#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/index/vector_index.h"

namespace faiss {
struct Index;
struct IOReader;
struct IOWriter;
}  // namespace faiss

namespace ragcache::retrieval {

inline constexpr std::string_view kExactKind = "exact";
inline constexpr std::string_view kIvfFlatKind = "ivf_flat";

// k-means wants at least this many training vectors per list (Faiss' own warning threshold).
inline constexpr size_t kTrainingVectorsPerList = 39;

// Vectors in a contiguous block, with their ids.
struct VectorBlock {
  std::vector<int64_t> ids;
  std::vector<float> vectors;  // [ids.size(), dimension]
};

// One Faiss index: a flat scan, or inverted lists over k-means clusters of which a search scans
// the `probes` nearest. Faiss' exceptions stop here; its OpenMP stays at the calling thread,
// whose setting for other libraries it leaves as it was.
class FaissIndex final : public VectorIndex {
 public:
  static std::unique_ptr<FaissIndex> exact(uint32_t dimension);
  // Trains on the vectors of `block`, then adds them. Deterministic for equal input.
  // REQUIRES: lists > 0, block.ids.size() >= lists.
  static absl::StatusOr<std::unique_ptr<FaissIndex>> ivf_flat(uint32_t dimension,
                                                              const VectorBlock& block,
                                                              uint32_t lists, uint32_t probes);
  // Reads what write() wrote. DATA_LOSS if it is not an index of that kind and dimension.
  static absl::StatusOr<std::unique_ptr<FaissIndex>> read(faiss::IOReader& reader,
                                                          std::string_view kind, uint32_t dimension,
                                                          uint32_t probes);
  ~FaissIndex() override;

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;
  absl::StatusOr<std::vector<VectorHit>> search(std::span<const float> query,
                                                size_t k) const override;
  size_t size() const override;
  std::vector<int64_t> ids() const override;
  std::string_view kind() const override { return kind_; }

  uint32_t lists() const;  // 0 for an exact index
  VectorBlock copy_vectors() const;
  absl::Status write(faiss::IOWriter& writer) const;

 private:
  FaissIndex(std::string_view kind, uint32_t dimension, uint32_t probes,
             std::unique_ptr<faiss::Index> index);

  // REQUIRES: the caller holds a lock.
  absl::StatusOr<std::vector<VectorHit>> search_once(std::span<const float> query, size_t k) const;
  std::shared_lock<std::shared_mutex> lock_to_read() const;
  std::unique_lock<std::shared_mutex> lock_to_write();

  const std::string_view kind_;
  const uint32_t dimension_;
  const uint32_t probes_;

  // Everybody passes the gate, and a writer waits in it: a stream of searches, each overlapping
  // the next, cannot starve an ingest.
  mutable std::mutex gate_;
  mutable std::shared_mutex mutex_;
  std::unique_ptr<faiss::Index> index_;  // guarded by mutex_
};

}  // namespace ragcache::retrieval
