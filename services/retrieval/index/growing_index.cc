#include "services/retrieval/index/growing_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"

namespace ragcache::retrieval {
namespace {

constexpr uint32_t kProbesMin = 8;
constexpr uint32_t kListsPerProbe = 16;

// The largest power of two up to 4·sqrt(n) (Faiss' guideline) that n vectors can train.
uint32_t lists_by_size(size_t size) {
  const auto guideline = static_cast<uint32_t>(4 * std::sqrt(static_cast<double>(size)));
  uint32_t lists = std::bit_floor(std::max(guideline, 1u));
  while (lists > 1 && lists * kTrainingVectorsPerList > size) lists /= 2;
  return lists;
}

uint32_t probes_by_lists(uint32_t configured, uint32_t lists) {
  if (configured > 0) return configured;
  return std::max(kProbesMin, lists / kListsPerProbe);
}

}  // namespace

GrowingIndex::GrowingIndex(const IndexOptions& options, std::shared_ptr<FaissIndex> index,
                           uint64_t trained_on)
    : options_(options), trained_on_(trained_on), current_(std::move(index)) {}

std::unique_ptr<GrowingIndex> GrowingIndex::create(const IndexOptions& options) {
  return std::unique_ptr<GrowingIndex>(
      new GrowingIndex(options, FaissIndex::exact(options.dimension), 0));
}

absl::StatusOr<std::unique_ptr<GrowingIndex>> GrowingIndex::load(const std::string& path,
                                                                 const IndexOptions& options,
                                                                 const IndexIdentity& identity) {
  RAG_ASSIGN_OR_RETURN(LoadedIndex loaded,
                       load_index_file(path, options.dimension, identity, [&](uint32_t lists) {
                         return probes_by_lists(options.ivf_probes, lists);
                       }));
  if (loaded.index->kind() == kIvfFlatKind) {
    const bool other_lists = options.ivf_lists > 0 && options.ivf_lists != loaded.index->lists();
    if (options.kind == IndexOptions::Kind::kExact || other_lists) {
      return absl::FailedPreconditionError("index file " + path +
                                           " was made with another kind or number of lists");
    }
  }
  return std::unique_ptr<GrowingIndex>(
      new GrowingIndex(options, std::move(loaded.index), loaded.trained_on));
}

absl::Status GrowingIndex::save(const std::string& path, const IndexIdentity& identity) const {
  const std::lock_guard lock(write_mutex_);
  return save_index_file(path, *current(), options_.dimension, trained_on_, identity);
}

absl::Status GrowingIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  const std::lock_guard lock(write_mutex_);
  return current()->add(ids, vectors);
}

absl::StatusOr<size_t> GrowingIndex::remove(std::span<const int64_t> ids) {
  const std::lock_guard lock(write_mutex_);
  return current()->remove(ids);
}

absl::StatusOr<std::vector<VectorHit>> GrowingIndex::search(std::span<const float> query,
                                                            size_t k) const {
  return current()->search(query, k);
}

absl::StatusOr<bool> GrowingIndex::improve() {
  const std::lock_guard lock(write_mutex_);
  const std::shared_ptr<FaissIndex> index = current();
  const size_t size = index->size();
  const uint32_t lists = wanted_lists(size);
  if (lists == 0) return false;
  const bool is_ivf = index->kind() == kIvfFlatKind;
  if (is_ivf && (options_.ivf_lists > 0 || size < kRetrainGrowth * trained_on_)) {
    return false;
  }
  const TimePoint started = steady_now();
  RAG_ASSIGN_OR_RETURN(std::unique_ptr<FaissIndex> trained,
                       FaissIndex::ivf_flat(options_.dimension, index->copy_vectors(), lists,
                                            probes_by_lists(options_.ivf_probes, lists)));
  {
    const std::lock_guard swap_lock(current_mutex_);
    current_ = std::move(trained);
  }
  trained_on_ = size;
  log::info("index trained",
            {{"vectors", size}, {"lists", lists}, {"seconds", to_seconds(steady_now() - started)}});
  return true;
}

std::shared_ptr<FaissIndex> GrowingIndex::current() const {
  const std::lock_guard lock(current_mutex_);
  return current_;
}

// 0: stay exact.
uint32_t GrowingIndex::wanted_lists(size_t size) const {
  if (options_.kind == IndexOptions::Kind::kExact) return 0;
  if (options_.kind == IndexOptions::Kind::kAuto && size <= kExactVectorsMax) return 0;
  if (size < kTrainingVectorsPerList) return 0;
  if (options_.ivf_lists == 0) return lists_by_size(size);
  return options_.ivf_lists * kTrainingVectorsPerList <= size ? options_.ivf_lists : 0;
}

}  // namespace ragcache::retrieval
