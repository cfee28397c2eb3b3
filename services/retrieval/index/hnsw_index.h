#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/vector_index.h"

namespace faiss {
struct IndexHNSWFlat;
}

namespace ragcache::retrieval {

class SpanReader;

// Faiss' graph of near neighbours over whole vectors. A node of the graph cannot be taken out, so a
// removed vector leaves a tombstone: a node that searches pass through and never return, until the
// index is built anew.
//
// A search looks at more nodes the fewer of them it may return. Where that is no longer cheaper
// than a scan of those it may return, or the graph yields less than k, it is that scan: like the
// other kinds, it gives fewer hits than k only if there are fewer.
class HnswIndex final : public VectorIndex {
 public:
  explicit HnswIndex(const IndexOptions& options);
  ~HnswIndex() override;
  // DATA_LOSS if the bytes are no such index. FAILED_PRECONDITION: of another hnsw_m.
  static absl::StatusOr<std::unique_ptr<HnswIndex>> read(SpanReader& reader,
                                                         const IndexOptions& options);

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;
  bool needs_compaction() const override;

 private:
  void scan(std::span<const float> query, size_t k, const IdFilter* filter,
            std::vector<VectorHit>& hits) const override;
  void scan_graph(std::span<const float> query, size_t k, size_t ef, const IdFilter* filter,
                  std::vector<VectorHit>& hits) const;
  void scan_all(std::span<const float> query, size_t k, const IdFilter* filter,
                std::vector<VectorHit>& hits) const;
  double allowed_share(const IdFilter* filter) const;
  size_t size_locked() const override { return node_of_.size(); }
  void append_ids(std::vector<int64_t>& ids) const override;
  size_t memory_bytes_locked() const override;
  void write_locked(faiss::IOWriter& writer) const override;
  const uint8_t* rows() const;  // [ids_.size(), dimension] floats

  const uint32_t ef_search_;

  std::unique_ptr<faiss::IndexHNSWFlat> graph_;
  std::vector<int64_t> ids_;  // of the graph's nodes; kTombstone where removed
  absl::flat_hash_map<int64_t, int32_t> node_of_;
};

}  // namespace ragcache::retrieval
