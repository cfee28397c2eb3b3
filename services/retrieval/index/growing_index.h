#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/retrieval/index/faiss_index.h"
#include "services/retrieval/index/index_file.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/trained_state.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

// Gives the vectors of those of `ids` that it has; the index is made from them and may be made anew
// from them at any time, some kinds keeping no vector whole.
using VectorReader = std::function<absl::Status(
    std::span<const int64_t> ids,
    const std::function<void(int64_t id, std::span<const float> vector)>& visit)>;

// The index of a corpus that grows: of the ivf kinds, begins as an exact scan and becomes inverted
// lists when improve() finds vectors enough to train them or adopt_trained() brings the result of a
// training elsewhere.
//
// Any thread, as VectorIndex says. A new index is built beside the one in use, from `originals`;
// searches, adds and removes go on meanwhile, and what they changed is brought over at its end.
class GrowingIndex final : public VectorIndex {
 public:
  // REQUIRES of this and load(): check_index_options() is OK.
  static std::unique_ptr<GrowingIndex> create(const IndexOptions& options, VectorReader originals);
  // NOT_FOUND: no file. DATA_LOSS: damaged. FAILED_PRECONDITION: of another store, embedding
  // model, program version or options. Each message names the file.
  static absl::StatusOr<std::unique_ptr<GrowingIndex>> load(const std::string& path,
                                                            const IndexOptions& options,
                                                            const IndexIdentity& identity,
                                                            VectorReader originals);
  // Writes the file whole or not at all. Searches go on meanwhile, writers wait.
  absl::Status save(const std::string& path, const IndexIdentity& identity) const;

  absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) override;
  absl::StatusOr<size_t> remove(std::span<const int64_t> ids) override;
  absl::StatusOr<Candidates> candidates(std::span<const float> query, size_t k,
                                        const IdFilter* filter) const override;
  size_t size() const override { return current()->size(); }
  std::vector<int64_t> ids() const override { return current()->ids(); }
  std::string_view kind() const override { return current()->kind(); }
  size_t memory_bytes() const { return current()->memory_bytes(); }

  // Trains if the size calls for it, and builds the index anew if too much of it was removed; true
  // if it did either. Takes long; tells its progress and logs it every few seconds. CANCELLED if
  // asked to stop; ABORTED if `originals` lacked vectors that the index has, as it may while a
  // document is being replaced: try again later. After an error the index is what it was.
  absl::StatusOr<bool> improve(const BuildProgress& progress = {}, std::stop_token stop = {});

  // What train_index() or another index's trained_state() gave; the index is built anew by it.
  // Indexes with the same trained state, over parts of a corpus, give candidates that together are
  // those of one index over all. INVALID_ARGUMENT: damaged, or of another kind or dimension than
  // the options ask for; other errors as improve().
  absl::Status adopt_trained(std::string bytes, const BuildProgress& progress = {},
                             std::stop_token stop = {});
  // Empty if searches use none: the index is exact or hnsw.
  std::string trained_state() const;

  // improve() without training, for an index whose trained state comes from elsewhere.
  absl::StatusOr<bool> compact(const BuildProgress& progress = {}, std::stop_token stop = {});

 private:
  // Of a build: changes since it began. No vector: removed.
  using Changes = absl::flat_hash_map<int64_t, std::optional<std::vector<float>>>;

  GrowingIndex(const IndexOptions& options, std::shared_ptr<FaissIndex> index,
               VectorReader originals);

  std::shared_ptr<FaissIndex> current() const;
  absl::StatusOr<std::vector<float>> read_sample(uint64_t size) const;
  // REQUIRES of those below: the caller holds build_mutex_.
  absl::Status adopt(std::string bytes, const BuildProgress& progress, std::stop_token stop);
  absl::StatusOr<bool> compact_locked(const BuildProgress& progress, std::stop_token stop);
  absl::Status replace_by(std::shared_ptr<FaissIndex> next, const BuildProgress& progress,
                          std::stop_token stop);
  absl::Status fill(FaissIndex& next, const BuildProgress& progress, std::stop_token stop,
                    std::vector<int64_t>& missing);
  absl::Status apply_changes(FaissIndex& next, const std::vector<int64_t>& missing);

  const IndexOptions options_;
  const VectorReader originals_;

  std::mutex build_mutex_;  // held by whoever trains or builds, all the time

  // Held by whoever changes or saves the index; never by a search.
  mutable std::mutex write_mutex_;
  std::optional<Changes> changes_;  // guarded by write_mutex_; while a build is under way

  mutable std::mutex current_mutex_;
  std::shared_ptr<FaissIndex> current_;  // guarded by current_mutex_; replaced under write_mutex_
};

}  // namespace ragcache::retrieval
