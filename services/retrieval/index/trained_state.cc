#include "services/retrieval/index/trained_state.h"

#include <faiss/Clustering.h>
#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexIVFPQ.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/index_io.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/hash.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/index/faiss_calls.h"

namespace ragcache::retrieval {
namespace {

constexpr int kClusteringIterations = 10;
constexpr int kCodebookIterations = 25;
constexpr uint64_t kTrainingVectorsPerListMax = 64;
// A component outside its range is cut off: the range is that of the sample, wider by this share.
constexpr float kRangeMargin = 0.1f;

constexpr std::array<char, 8> kMagic = {'R', 'A', 'G', 'C', 'T', 'R', 'N', '\n'};
constexpr uint32_t kVersion = 1;

// As it lies in the bytes: little-endian, no padding. Faiss' own format follows.
struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t dimension;
  std::array<char, 16> kind;  // padded with zeros
  uint64_t trained_on;
  uint32_t lists;
  uint32_t pq_subvectors;
  uint32_t pq_bits;
  uint32_t reserved;
  uint64_t payload_bytes;
  Digest payload_digest;
  Digest header_digest;  // of all bytes before it
};
static_assert(sizeof(Header) == 64 + 2 * 32 && alignof(Header) == 8);

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Digest digest_of(const Header& header) {
  return Sha256()
      .update({reinterpret_cast<const uint8_t*>(&header), offsetof(Header, header_digest)})
      .finish();
}

std::string_view trained_kind(IndexOptions::Kind kind) {
  switch (kind) {
    case IndexOptions::Kind::kAuto:
    case IndexOptions::Kind::kIvfFlat:
      return kIvfFlatKind;
    case IndexOptions::Kind::kIvfPq:
      return kIvfPqKind;
    case IndexOptions::Kind::kIvfSq8:
      return kIvfSq8Kind;
    case IndexOptions::Kind::kExact:
    case IndexOptions::Kind::kHnsw:
      return {};
  }
  return {};
}

// The largest power of two up to 4·sqrt(n) (Faiss' guideline) that n vectors can train.
uint32_t lists_by_size(uint64_t size) {
  const auto guideline = static_cast<uint32_t>(4 * std::sqrt(static_cast<double>(size)));
  uint32_t lists = std::bit_floor(std::max(guideline, 1u));
  while (lists > 1 && lists * kTrainingVectorsPerList > size) lists /= 2;
  return lists;
}

std::unique_ptr<faiss::IndexIVF> empty_index(std::string_view kind, const IndexOptions& options,
                                             uint32_t lists) {
  const auto dimension = static_cast<int64_t>(options.dimension);
  auto quantizer = std::make_unique<faiss::IndexFlatIP>(dimension);
  std::unique_ptr<faiss::IndexIVF> index;
  if (kind == kIvfPqKind) {
    index = std::make_unique<faiss::IndexIVFPQ>(quantizer.get(), dimension, lists,
                                                pq_subvectors(options), options.pq_bits,
                                                faiss::METRIC_INNER_PRODUCT);
  } else if (kind == kIvfSq8Kind) {
    auto scalar = std::make_unique<faiss::IndexIVFScalarQuantizer>(
        quantizer.get(), dimension, lists, faiss::ScalarQuantizer::QT_8bit,
        faiss::METRIC_INNER_PRODUCT, /*encode_residual=*/false);
    scalar->sq.rangestat_arg = kRangeMargin;
    index = std::move(scalar);
  } else {
    index = std::make_unique<faiss::IndexIVFFlat>(quantizer.get(), dimension, lists,
                                                  faiss::METRIC_INNER_PRODUCT);
  }
  quantizer.release();
  index->own_fields = true;
  return index;
}

// Counts the steps of a training. An iteration of k-means and a codebook count one each.
class Steps {
 public:
  Steps(const TrainingProgress& progress, std::stop_token stop, uint64_t total)
      : progress_(progress), stop_(std::move(stop)), total_(total) {}

  absl::Status next() {
    ++done_;
    if (progress_) progress_(done_, total_);
    if (stop_.stop_requested()) return absl::CancelledError("training was cancelled");
    return absl::OkStatus();
  }

 private:
  const TrainingProgress& progress_;
  const std::stop_token stop_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

absl::Status train_lists(faiss::IndexIVF& index, std::span<const float> sample, Steps& steps) {
  faiss::Clustering clustering(index.d, static_cast<int>(index.nlist));
  // Clusters of unit vectors by inner product: centroids must be unit vectors as well.
  clustering.spherical = true;
  clustering.niter = 1;  // at a time: the centroids of one are where the next begins
  clustering.min_points_per_centroid = 1;
  clustering.max_points_per_centroid = static_cast<int>(kTrainingVectorsPerListMax);
  const auto count = static_cast<int64_t>(sample.size()) / index.d;
  for (int i = 0; i < kClusteringIterations; ++i) {
    RAG_RETURN_IF_ERROR(call_faiss(
        "train lists", [&] { clustering.train(count, sample.data(), *index.quantizer); }));
    RAG_RETURN_IF_ERROR(steps.next());
  }
  return absl::OkStatus();
}

absl::Status train_codebooks(faiss::IndexIVFPQ& index, std::span<const float> sample,
                             Steps& steps) {
  const size_t dimension = static_cast<size_t>(index.d);
  const size_t count = sample.size() / dimension;
  std::vector<float> residuals(sample.size());
  RAG_RETURN_IF_ERROR(call_faiss("train codebooks", [&] {
    std::vector<int64_t> lists(count);
    index.quantizer->assign(static_cast<int64_t>(count), sample.data(), lists.data());
    index.quantizer->compute_residual_n(static_cast<int64_t>(count), sample.data(),
                                        residuals.data(), lists.data());
  }));
  faiss::ProductQuantizer& pq = index.pq;
  std::vector<float> slice(count * pq.dsub);
  for (size_t m = 0; m < pq.M; ++m) {
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(residuals.data() + i * dimension + m * pq.dsub, pq.dsub,
                  slice.data() + i * pq.dsub);
    }
    RAG_RETURN_IF_ERROR(call_faiss("train codebooks", [&] {
      faiss::Clustering clustering(static_cast<int>(pq.dsub), static_cast<int>(pq.ksub));
      clustering.niter = kCodebookIterations;
      clustering.min_points_per_centroid = 1;
      clustering.max_points_per_centroid = static_cast<int>(kTrainingVectorsPerListMax);
      faiss::IndexFlatL2 assigner(static_cast<int64_t>(pq.dsub));
      clustering.train(static_cast<int64_t>(count), slice.data(), assigner);
      pq.set_params(clustering.centroids.data(), static_cast<int>(m));
    }));
    RAG_RETURN_IF_ERROR(steps.next());
  }
  return absl::OkStatus();
}

}  // namespace

TrainedState::TrainedState() = default;
TrainedState::TrainedState(TrainedState&&) noexcept = default;
TrainedState::~TrainedState() = default;

TrainingPlan plan_training(const IndexOptions& options, uint64_t vectors,
                           const TrainedInfo* trained) {
  const std::string_view kind = trained_kind(options.kind);
  if (kind.empty()) return {};
  if (options.kind == IndexOptions::Kind::kAuto && vectors <= kExactVectorsMax) return {};
  if (trained != nullptr &&
      (options.ivf_lists > 0 || vectors < kRetrainGrowth * trained->trained_on)) {
    return {};
  }
  const uint32_t lists = options.ivf_lists > 0 ? options.ivf_lists : lists_by_size(vectors);
  const uint64_t codes = kind == kIvfPqKind ? uint64_t{1} << options.pq_bits : 0;
  const uint64_t groups = std::max<uint64_t>(lists, codes);
  if (vectors < groups * kTrainingVectorsPerList) return {};
  return {.lists = lists,
          .vectors = vectors,
          .sample_size = std::min(vectors, groups * kTrainingVectorsPerListMax),
          .sample_min = groups * kTrainingVectorsPerList};
}

absl::StatusOr<std::string> train_index(const IndexOptions& options, const TrainingPlan& plan,
                                        std::span<const float> sample,
                                        const TrainingProgress& progress, std::stop_token stop) {
  const std::string_view kind = trained_kind(options.kind);
  RAG_CHECK(!kind.empty() && plan.lists > 0 && sample.size() % options.dimension == 0);
  RAG_CHECK(sample.size() / options.dimension >= plan.sample_min);
  const std::unique_ptr<faiss::IndexIVF> index = empty_index(kind, options, plan.lists);
  auto* pq = dynamic_cast<faiss::IndexIVFPQ*>(index.get());
  Steps steps(progress, std::move(stop), kClusteringIterations + (pq != nullptr ? pq->pq.M : 0));
  RAG_RETURN_IF_ERROR(train_lists(*index, sample, steps));
  if (pq != nullptr) {
    RAG_RETURN_IF_ERROR(train_codebooks(*pq, sample, steps));
  } else if (kind == kIvfSq8Kind) {
    const auto count = static_cast<int64_t>(sample.size() / options.dimension);
    RAG_RETURN_IF_ERROR(
        call_faiss("train ranges", [&] { index->train_residual(count, sample.data()); }));
  }
  index->is_trained = true;

  StringWriter payload;
  RAG_RETURN_IF_ERROR(call_faiss("write", [&] { faiss::write_index(index.get(), &payload); }));
  Header header = {};
  header.magic = kMagic;
  header.version = kVersion;
  header.dimension = options.dimension;
  std::ranges::copy(kind, header.kind.begin());
  header.trained_on = plan.vectors;
  header.lists = plan.lists;
  header.pq_subvectors = pq != nullptr ? static_cast<uint32_t>(pq->pq.M) : 0;
  header.pq_bits = pq != nullptr ? options.pq_bits : 0;
  header.payload_bytes = payload.bytes.size();
  header.payload_digest = sha256(payload.bytes);
  header.header_digest = digest_of(header);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload.bytes;
}

absl::StatusOr<TrainedState> TrainedState::parse(std::string bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError("trained state is shorter than its header");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return absl::DataLossError("trained state is none");
  if (header.version != kVersion) {
    return absl::FailedPreconditionError(
        str_cat("trained state has version ", header.version, ", not ", kVersion));
  }
  const std::string_view payload = std::string_view(bytes).substr(sizeof(header));
  if (header.header_digest != digest_of(header) || payload.size() != header.payload_bytes ||
      sha256(payload) != header.payload_digest) {
    return absl::DataLossError("trained state is damaged: its checksum differs");
  }
  std::unique_ptr<faiss::Index> index;
  SpanReader reader(as_bytes(payload));
  const absl::Status read = call_faiss("read", [&] { index.reset(faiss::read_index(&reader)); });
  if (!read.ok()) return absl::DataLossError(read.message());
  TrainedState state;
  state.info = {
      .kind = std::string(header.kind.data(), strnlen(header.kind.data(), header.kind.size())),
      .dimension = header.dimension,
      .lists = header.lists,
      .pq_subvectors = header.pq_subvectors,
      .pq_bits = header.pq_bits,
      .trained_on = header.trained_on};
  const std::string& kind = state.info.kind;
  const auto* pq = dynamic_cast<const faiss::IndexIVFPQ*>(index.get());
  const bool is_kind =
      (kind == kIvfFlatKind && dynamic_cast<const faiss::IndexIVFFlat*>(index.get())) ||
      (kind == kIvfSq8Kind && dynamic_cast<const faiss::IndexIVFScalarQuantizer*>(index.get())) ||
      (kind == kIvfPqKind && pq != nullptr && pq->pq.M == header.pq_subvectors &&
       pq->pq.nbits == header.pq_bits);
  auto* ivf = dynamic_cast<faiss::IndexIVF*>(index.get());
  if (!is_kind || ivf->d != static_cast<int>(header.dimension) || ivf->nlist != header.lists ||
      !ivf->is_trained || ivf->ntotal != 0 ||
      ivf->quantizer->ntotal != static_cast<int64_t>(header.lists) ||
      ivf->metric_type != faiss::METRIC_INNER_PRODUCT) {
    return absl::DataLossError("trained state: content does not fit its header");
  }
  index.release();
  state.index.reset(ivf);
  state.bytes = std::move(bytes);
  return state;
}

absl::Status check_trained(const TrainedInfo& info, const IndexOptions& options) {
  if (info.dimension != options.dimension) {
    return absl::FailedPreconditionError(
        str_cat("trained for dimension ", info.dimension, ", not ", options.dimension));
  }
  if (info.kind != trained_kind(options.kind)) {
    return absl::FailedPreconditionError(
        str_cat("trained as ", info.kind, ", which is not the kind of index asked for"));
  }
  if (options.ivf_lists > 0 && info.lists != options.ivf_lists) {
    return absl::FailedPreconditionError(
        str_cat("trained with ", info.lists, " lists, not ivf_lists=", options.ivf_lists));
  }
  if (info.kind == kIvfPqKind &&
      (info.pq_subvectors != pq_subvectors(options) || info.pq_bits != options.pq_bits)) {
    return absl::FailedPreconditionError(str_cat("trained with pq_subvectors=", info.pq_subvectors,
                                                 " pq_bits=", info.pq_bits, ", not ",
                                                 pq_subvectors(options), " and ", options.pq_bits));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
