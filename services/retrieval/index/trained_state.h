#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/retrieval/index/index_options.h"

// What the ivf kinds learn from a sample of vectors: cluster centroids and codebooks. Whoever
// trains need not hold the vectors that are indexed by it: indexes that adopt the same bytes probe
// the same lists and give a vector the same score, wherever it lies.
namespace faiss {
struct IndexIVF;
}

namespace ragcache::retrieval {

// k-means wants at least this many training vectors per list (Faiss' own warning threshold).
inline constexpr size_t kTrainingVectorsPerList = 39;
// Under kAuto, up to here a scan of everything takes a few milliseconds.
inline constexpr size_t kExactVectorsMax = 20'000;
// Lists that were trained by the number of vectors are trained anew when it has grown so much.
inline constexpr size_t kRetrainGrowth = 4;

// Called in the thread that trains: `done` of `total` steps.
using TrainingProgress = std::function<void(uint64_t done, uint64_t total)>;

// What `bytes` of a trained state say of themselves.
struct TrainedInfo {
  std::string kind;
  uint32_t dimension = 0;
  uint32_t lists = 0;
  uint32_t pq_subvectors = 0;  // 0 but for ivf_pq, as pq_bits
  uint32_t pq_bits = 0;
  uint64_t trained_on = 0;  // vectors there were, not only those of the sample
};

struct TrainingPlan {
  uint32_t lists = 0;        // 0: no training, `trained` is good enough or vectors are too few
  uint64_t vectors = 0;      // there are
  uint64_t sample_size = 0;  // of them, drawn evenly; sample_min will do if some have gone
  uint64_t sample_min = 0;
};

// What training an index of so many vectors calls for, all shards together. `trained` is the state
// in use, nullptr if there is none.
TrainingPlan plan_training(const IndexOptions& options, uint64_t vectors,
                           const TrainedInfo* trained);

// Trains by the plan. sample: [n, dimension]. Deterministic for equal input. One thread, the
// caller's. CANCELLED if asked to stop. REQUIRES: plan.lists > 0, n >= plan.sample_min.
absl::StatusOr<std::string> train_index(const IndexOptions& options, const TrainingPlan& plan,
                                        std::span<const float> sample,
                                        const TrainingProgress& progress, std::stop_token stop);

// A trained state whose bytes were checked.
struct TrainedState {
  TrainedState();
  TrainedState(TrainedState&&) noexcept;
  ~TrainedState();

  // DATA_LOSS: damaged. FAILED_PRECONDITION: of another program version.
  static absl::StatusOr<TrainedState> parse(std::string bytes);

  TrainedInfo info;
  std::string bytes;
  std::unique_ptr<faiss::IndexIVF> index;  // trained, empty
};

// FAILED_PRECONDITION if `info` is not what `options` ask for; names the option.
absl::Status check_trained(const TrainedInfo& info, const IndexOptions& options);

}  // namespace ragcache::retrieval
