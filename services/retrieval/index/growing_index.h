#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/index/faiss_index.h"
#include "services/retrieval/index/index_file.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

struct IndexOptions {
  enum class Kind {
    kExact,
    kIvfFlat,  // inverted lists as soon as there are vectors enough to train them
    kAuto,     // exact while that is fast enough, then inverted lists
  };

  Kind kind = Kind::kAuto;
  uint32_t dimension = 0;
  uint32_t ivf_lists = 0;   // 0: by the number of vectors
  uint32_t ivf_probes = 0;  // 0: one list in sixteen, eight at least
};

// The index of a corpus that grows: begins as an exact scan, and is retrained as inverted lists
// when improve() finds that its size calls for it.
//
// Any thread, as VectorIndex says. improve() trains on a copy while searches go on; adds and
// removes wait for it.
class GrowingIndex final : public VectorIndex {
 public:
  // Under kAuto, up to here a scan of everything takes a few milliseconds.
  static constexpr size_t kExactVectorsMax = 20'000;
  // Lists that were trained by the number of vectors are trained anew when it has grown so much.
  static constexpr size_t kRetrainGrowth = 4;

  static std::unique_ptr<GrowingIndex> create(const IndexOptions& options);
  // NOT_FOUND: no file. DATA_LOSS: damaged. FAILED_PRECONDITION: of another store, embedding
  // model, dimension or program version. Each message names the file.
  static absl::StatusOr<std::unique_ptr<GrowingIndex>> load(const std::string& path,
                                                            const IndexOptions& options,
                                                            const IndexIdentity& identity);
  // Writes the file whole or not at all. Searches go on meanwhile, writers wait.
  absl::Status save(const std::string& path, const IndexIdentity& identity) const;

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;
  absl::StatusOr<std::vector<VectorHit>> search(std::span<const float> query,
                                                size_t k) const override;
  size_t size() const override { return current()->size(); }
  std::vector<int64_t> ids() const override { return current()->ids(); }
  std::string_view kind() const override { return current()->kind(); }

  // Trains if the size calls for it; true if it did.
  absl::StatusOr<bool> improve();

 private:
  GrowingIndex(const IndexOptions& options, std::shared_ptr<FaissIndex> index, uint64_t trained_on);

  std::shared_ptr<FaissIndex> current() const;
  uint32_t wanted_lists(size_t size) const;

  const IndexOptions options_;

  // Held by whoever changes or saves the index, across everything that takes; never by a search.
  mutable std::mutex write_mutex_;
  uint64_t trained_on_;  // vectors there were at the last training; guarded by write_mutex_

  mutable std::mutex current_mutex_;
  std::shared_ptr<FaissIndex> current_;  // guarded by current_mutex_
};

}  // namespace ragcache::retrieval
