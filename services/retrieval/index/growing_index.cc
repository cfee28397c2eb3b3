#include "services/retrieval/index/growing_index.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/hnsw_index.h"
#include "services/retrieval/index/ivf_index.h"

namespace ragcache::retrieval {
namespace {

constexpr size_t kBuildBatch = 256;
constexpr double kProgressSeconds = 5;

// Passes progress on, and logs it now and then.
class ProgressLog {
 public:
  explicit ProgressLog(const BuildProgress& progress) : progress_(progress) {}

  void operator()(std::string_view stage, uint64_t done, uint64_t total) {
    if (progress_) progress_(stage, done, total);
    const TimePoint now = steady_now();
    if (to_seconds(now - last_) < kProgressSeconds) return;
    last_ = now;
    log::info("building the index", {{"stage", stage}, {"done", done}, {"total", total}});
  }

 private:
  const BuildProgress& progress_;
  TimePoint last_ = steady_now();
};

std::shared_ptr<FaissIndex> empty_index(const IndexOptions& options) {
  if (options.kind == IndexOptions::Kind::kHnsw) return std::make_shared<HnswIndex>(options);
  return std::make_shared<FlatIndex>(options.dimension);
}

const IvfIndex* as_ivf(const FaissIndex& index) { return dynamic_cast<const IvfIndex*>(&index); }

}  // namespace

GrowingIndex::GrowingIndex(const IndexOptions& options, std::shared_ptr<FaissIndex> index,
                           VectorReader originals)
    : options_(options), originals_(std::move(originals)), current_(std::move(index)) {
  RAG_CHECK(check_index_options(options).ok());
}

std::unique_ptr<GrowingIndex> GrowingIndex::create(const IndexOptions& options,
                                                   VectorReader originals) {
  return std::unique_ptr<GrowingIndex>(
      new GrowingIndex(options, empty_index(options), std::move(originals)));
}

absl::StatusOr<std::unique_ptr<GrowingIndex>> GrowingIndex::load(const std::string& path,
                                                                 const IndexOptions& options,
                                                                 const IndexIdentity& identity,
                                                                 VectorReader originals) {
  RAG_ASSIGN_OR_RETURN(LoadedIndex loaded, load_index_file(path, options, identity));
  return std::unique_ptr<GrowingIndex>(
      new GrowingIndex(options, std::move(loaded.index), std::move(originals)));
}

absl::Status GrowingIndex::save(const std::string& path, const IndexIdentity& identity) const {
  const std::lock_guard lock(write_mutex_);
  return save_index_file(path, *current(), options_, identity, {});
}

absl::Status GrowingIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  const std::lock_guard lock(write_mutex_);
  RAG_RETURN_IF_ERROR(current()->add(ids, vectors));
  if (!changes_.has_value()) return absl::OkStatus();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto vector = vectors.subspan(i * options_.dimension, options_.dimension);
    (*changes_)[ids[i]].emplace(vector.begin(), vector.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> GrowingIndex::remove(std::span<const int64_t> ids) {
  const std::lock_guard lock(write_mutex_);
  if (changes_.has_value()) {
    for (const int64_t id : ids) (*changes_)[id] = std::nullopt;
  }
  return current()->remove(ids);
}

absl::StatusOr<Candidates> GrowingIndex::candidates(std::span<const float> query, size_t k,
                                                    const IdFilter* filter) const {
  return current()->candidates(query, k, filter);
}

std::string GrowingIndex::trained_state() const {
  const std::shared_ptr<FaissIndex> index = current();
  const IvfIndex* ivf = as_ivf(*index);
  return ivf != nullptr ? ivf->trained().bytes : std::string();
}

absl::StatusOr<bool> GrowingIndex::improve(const BuildProgress& progress, std::stop_token stop) {
  const std::lock_guard building(build_mutex_);
  const std::shared_ptr<FaissIndex> index = current();
  const IvfIndex* ivf = as_ivf(*index);
  const TrainingPlan plan =
      plan_training(options_, index->size(), ivf != nullptr ? &ivf->trained().info : nullptr);
  if (plan.lists == 0) return compact_locked(progress, std::move(stop));
  const TimePoint started = steady_now();
  ProgressLog log(progress);
  const BuildProgress told = [&log](std::string_view stage, uint64_t done, uint64_t total) {
    log(stage, done, total);
  };
  RAG_ASSIGN_OR_RETURN(const std::vector<float> sample, read_sample(plan.sample_size));
  if (sample.size() < plan.sample_min * options_.dimension) return false;  // removed meanwhile
  RAG_ASSIGN_OR_RETURN(std::string bytes, train_index(options_, plan, sample, told, stop));
  RAG_RETURN_IF_ERROR(adopt(std::move(bytes), told, std::move(stop)));
  log::info("index trained", {{"kind", kind()},
                              {"vectors", plan.vectors},
                              {"lists", plan.lists},
                              {"seconds", to_seconds(steady_now() - started)}});
  return true;
}

absl::Status GrowingIndex::adopt_trained(std::string bytes, const BuildProgress& progress,
                                         std::stop_token stop) {
  const std::lock_guard building(build_mutex_);
  return adopt(std::move(bytes), progress, std::move(stop));
}

absl::StatusOr<bool> GrowingIndex::compact(const BuildProgress& progress, std::stop_token stop) {
  const std::lock_guard building(build_mutex_);
  return compact_locked(progress, std::move(stop));
}

absl::StatusOr<bool> GrowingIndex::compact_locked(const BuildProgress& progress,
                                                  std::stop_token stop) {
  if (!current()->needs_compaction()) return false;
  RAG_RETURN_IF_ERROR(replace_by(empty_index(options_), progress, std::move(stop)));
  return true;
}

absl::Status GrowingIndex::adopt(std::string bytes, const BuildProgress& progress,
                                 std::stop_token stop) {
  auto trained = TrainedState::parse(std::move(bytes));
  if (!trained.ok()) return absl::InvalidArgumentError(trained.status().message());
  if (const absl::Status fits = check_trained(trained->info, options_); !fits.ok()) {
    return absl::InvalidArgumentError(fits.message());
  }
  const uint32_t probes = ivf_probes(options_, trained->info.lists);
  return replace_by(std::make_shared<IvfIndex>(*std::move(trained), probes, options_.refine_factor),
                    progress, std::move(stop));
}

absl::Status GrowingIndex::replace_by(std::shared_ptr<FaissIndex> next,
                                      const BuildProgress& progress, std::stop_token stop) {
  std::vector<int64_t> missing;
  absl::Status filled = fill(*next, progress, std::move(stop), missing);
  const std::lock_guard lock(write_mutex_);
  if (filled.ok()) filled = apply_changes(*next, missing);
  changes_.reset();
  RAG_RETURN_IF_ERROR(filled);
  const std::lock_guard swap_lock(current_mutex_);
  current_ = std::move(next);
  return absl::OkStatus();
}

// Those ids whose vectors `originals_` does not have are added to `missing`.
absl::Status GrowingIndex::fill(FaissIndex& next, const BuildProgress& progress,
                                std::stop_token stop, std::vector<int64_t>& missing) {
  std::vector<int64_t> wanted;
  {
    const std::lock_guard lock(write_mutex_);
    changes_.emplace();
    wanted = current()->ids();
  }
  ProgressLog log(progress);
  std::vector<int64_t> ids;
  std::vector<float> vectors;
  for (size_t begin = 0; begin < wanted.size(); begin += kBuildBatch) {
    if (stop.stop_requested()) return absl::CancelledError("building the index was cancelled");
    const auto batch =
        std::span(wanted).subspan(begin, std::min(kBuildBatch, wanted.size() - begin));
    ids.clear();
    vectors.clear();
    RAG_RETURN_IF_ERROR(originals_(batch, [&](int64_t id, std::span<const float> vector) {
      ids.push_back(id);
      vectors.insert(vectors.end(), vector.begin(), vector.end());
    }));
    RAG_RETURN_IF_ERROR(next.add(ids, vectors));
    if (ids.size() < batch.size()) {
      std::ranges::sort(ids);
      std::ranges::set_difference(batch, ids, std::back_inserter(missing));
    }
    log("add", begin + batch.size(), wanted.size());
  }
  return absl::OkStatus();
}

absl::Status GrowingIndex::apply_changes(FaissIndex& next, const std::vector<int64_t>& missing) {
  for (const int64_t id : missing) {
    if (!changes_->contains(id)) {
      return absl::AbortedError(str_cat("vector ", id,
                                        " is in the index, but not where the index "
                                        "is built from"));
    }
  }
  std::vector<int64_t> changed, added;
  for (const auto& [id, vector] : *changes_) {
    changed.push_back(id);
    if (vector.has_value()) added.push_back(id);
  }
  std::ranges::sort(added);
  RAG_RETURN_IF_ERROR(next.remove(changed).status());
  std::vector<float> vectors;
  for (const int64_t id : added) {
    const std::vector<float>& vector = *(*changes_)[id];
    vectors.insert(vectors.end(), vector.begin(), vector.end());
  }
  return next.add(added, vectors);
}

// Spread evenly over the ids.
absl::StatusOr<std::vector<float>> GrowingIndex::read_sample(uint64_t size) const {
  const std::vector<int64_t> ids = current()->ids();
  std::vector<int64_t> sample;
  for (uint64_t i = 0; i < size && !ids.empty(); ++i) sample.push_back(ids[i * ids.size() / size]);
  std::vector<float> vectors;
  vectors.reserve(size * options_.dimension);
  for (size_t begin = 0; begin < sample.size(); begin += kBuildBatch) {
    const auto batch =
        std::span(sample).subspan(begin, std::min(kBuildBatch, sample.size() - begin));
    RAG_RETURN_IF_ERROR(originals_(batch, [&](int64_t, std::span<const float> vector) {
      vectors.insert(vectors.end(), vector.begin(), vector.end());
    }));
  }
  return vectors;
}

std::shared_ptr<FaissIndex> GrowingIndex::current() const {
  const std::lock_guard lock(current_mutex_);
  return current_;
}

}  // namespace ragcache::retrieval
