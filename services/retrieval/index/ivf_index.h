#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/retrieval/index/trained_state.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

class SpanReader;

// Inverted lists over k-means clusters, of which a search scans the nearest few: ivf_flat, ivf_pq
// and ivf_sq8, by what the trained state encodes vectors as. Faiss encodes, and scans product
// codes; the lists are here, so that a vector can be removed in constant time.
class IvfIndex final : public VectorIndex {
 public:
  // An empty index. refine_factor as in IndexOptions.
  IvfIndex(TrainedState trained, uint32_t probes, uint32_t refine_factor);
  ~IvfIndex() override;
  // DATA_LOSS if the bytes end early or hold vectors twice.
  static absl::StatusOr<std::unique_ptr<IvfIndex>> read(SpanReader& reader, TrainedState trained,
                                                        uint32_t probes, uint32_t refine_factor);

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;

  const TrainedState& trained() const { return trained_; }

 private:
  struct List {
    std::vector<int64_t> ids;
    std::vector<uint8_t> codes;       // [ids.size(), code size]
    std::vector<uint16_t> originals;  // [ids.size(), dimension] halves, if refined
  };
  struct Place {
    uint32_t list;
    uint32_t offset;
  };

  void scan(std::span<const float> query, size_t k, const IdFilter* filter,
            std::vector<VectorHit>& hits) const override;
  void rescore(std::span<const float> query, std::span<VectorHit> hits) const override;
  size_t refine_factor() const override { return refines() ? refine_factor_ : 1; }
  size_t size_locked() const override { return place_of_.size(); }
  void append_ids(std::vector<int64_t>& ids) const override;
  size_t memory_bytes_locked() const override;
  void write_locked(faiss::IOWriter& writer) const override;
  bool refines() const { return refine_factor_ > 0; }
  size_t code_size() const;
  const float* centroid(size_t list) const;
  std::vector<VectorHit> nearest_lists(std::span<const float> query, size_t count) const;
  void scan_product_codes(std::span<const float> query, std::span<const VectorHit> lists, size_t k,
                          const IdFilter* filter, std::vector<VectorHit>& hits) const;

  const TrainedState trained_;
  const uint32_t probes_;
  const uint32_t refine_factor_;  // 0: hits keep the scores of their codes

  std::vector<List> lists_;
  absl::flat_hash_map<int64_t, Place> place_of_;
};

}  // namespace ragcache::retrieval
