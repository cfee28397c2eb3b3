#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

class SpanReader;

// Scores every vector.
class FlatIndex final : public VectorIndex {
 public:
  explicit FlatIndex(uint32_t dimension);
  // DATA_LOSS if the bytes end early.
  static absl::StatusOr<std::unique_ptr<FlatIndex>> read(SpanReader& reader, uint32_t dimension);

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;

 private:
  void scan(std::span<const float> query, size_t k, const IdFilter* filter,
            std::vector<VectorHit>& hits) const override;
  size_t size_locked() const override { return ids_.size(); }
  void append_ids(std::vector<int64_t>& ids) const override;
  size_t memory_bytes_locked() const override;
  void write_locked(faiss::IOWriter& writer) const override;

  // Row i belongs to ids_[i]. The last row fills the place of a removed one.
  std::vector<int64_t> ids_;
  std::vector<float> rows_;  // [ids_.size(), dimension]
  absl::flat_hash_map<int64_t, size_t> row_of_;
};

}  // namespace ragcache::retrieval
