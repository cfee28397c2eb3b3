#include "services/retrieval/index/faiss_index.h"

#include <faiss/IndexFlat.h>
#include <faiss/IndexIDMap.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/impl/io.h>
#include <faiss/index_io.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace ragcache::retrieval {
namespace {

constexpr int kClusteringIterations = 10;
constexpr int kTrainingVectorsPerListMax = 64;

// OpenMP's thread count belongs to the calling thread; whoever else computes on this thread later
// finds its own again.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  const int before_;
};

template <typename Function>
absl::Status call_faiss(absl::string_view action, Function&& function) {
  try {
    function();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("vector index: no memory to ", action));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("vector index: cannot ", action, ": ", error.what()));
  }
}

const faiss::IndexIVFFlat* as_ivf(const faiss::Index& index) {
  return dynamic_cast<const faiss::IndexIVFFlat*>(&index);
}

const faiss::IndexFlat* flat_of(const faiss::IndexIDMap& map) {
  return dynamic_cast<const faiss::IndexFlat*>(map.index);
}

}  // namespace

FaissIndex::FaissIndex(std::string_view kind, uint32_t dimension, uint32_t probes,
                       std::unique_ptr<faiss::Index> index)
    : kind_(kind), dimension_(dimension), probes_(probes), index_(std::move(index)) {}

FaissIndex::~FaissIndex() = default;

std::shared_lock<std::shared_mutex> FaissIndex::lock_to_read() const {
  const std::lock_guard gate(gate_);
  return std::shared_lock(mutex_);
}

std::unique_lock<std::shared_mutex> FaissIndex::lock_to_write() {
  const std::lock_guard gate(gate_);
  return std::unique_lock(mutex_);
}

std::unique_ptr<FaissIndex> FaissIndex::exact(uint32_t dimension) {
  auto map = std::make_unique<faiss::IndexIDMap>(new faiss::IndexFlatIP(dimension));
  map->own_fields = true;
  return std::unique_ptr<FaissIndex>(new FaissIndex(kExactKind, dimension, 0, std::move(map)));
}

absl::StatusOr<std::unique_ptr<FaissIndex>> FaissIndex::ivf_flat(uint32_t dimension,
                                                                 const VectorBlock& block,
                                                                 uint32_t lists, uint32_t probes) {
  RAG_CHECK(lists > 0 && block.ids.size() >= lists);
  RAG_CHECK(block.vectors.size() == block.ids.size() * dimension);
  // Two threads that wait for each other by spinning lose more than they gain on a busy machine.
  const OneOpenMpThread one_thread;
  std::unique_ptr<faiss::IndexIVFFlat> index;
  RAG_RETURN_IF_ERROR(call_faiss("train", [&] {
    auto quantizer = std::make_unique<faiss::IndexFlatIP>(dimension);
    index = std::make_unique<faiss::IndexIVFFlat>(quantizer.get(), dimension, lists,
                                                  faiss::METRIC_INNER_PRODUCT);
    index->own_fields = true;
    quantizer.release();
    // Clusters of unit vectors by inner product: centroids must be unit vectors as well.
    index->cp.spherical = true;
    index->cp.niter = kClusteringIterations;
    index->cp.max_points_per_centroid = kTrainingVectorsPerListMax;
    const auto count = static_cast<int64_t>(block.ids.size());
    index->train(count, block.vectors.data());
    index->add_with_ids(count, block.vectors.data(), block.ids.data());
  }));
  return std::unique_ptr<FaissIndex>(
      new FaissIndex(kIvfFlatKind, dimension, probes, std::move(index)));
}

absl::StatusOr<std::unique_ptr<FaissIndex>> FaissIndex::read(faiss::IOReader& reader,
                                                             std::string_view kind,
                                                             uint32_t dimension, uint32_t probes) {
  std::unique_ptr<faiss::Index> index;
  if (absl::Status status = call_faiss("read", [&] { index.reset(faiss::read_index(&reader)); });
      !status.ok()) {
    return absl::DataLossError(status.message());
  }
  const auto* map = dynamic_cast<const faiss::IndexIDMap*>(index.get());
  const bool is_exact = map != nullptr && flat_of(*map) != nullptr;
  const bool is_kind = kind == kExactKind ? is_exact : as_ivf(*index) != nullptr;
  if (!is_kind || index->d != static_cast<int>(dimension) || !index->is_trained ||
      index->metric_type != faiss::METRIC_INNER_PRODUCT) {
    return absl::DataLossError("vector index: content does not fit its header");
  }
  return std::unique_ptr<FaissIndex>(new FaissIndex(kind == kExactKind ? kExactKind : kIvfFlatKind,
                                                    dimension, probes, std::move(index)));
}

absl::Status FaissIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  RAG_CHECK(vectors.size() == ids.size() * dimension_);
  if (ids.empty()) return absl::OkStatus();
  const OneOpenMpThread one_thread;
  const auto lock = lock_to_write();
  return call_faiss("add", [&] {
    index_->add_with_ids(static_cast<int64_t>(ids.size()), vectors.data(), ids.data());
  });
}

absl::StatusOr<size_t> FaissIndex::remove(std::span<const int64_t> ids) {
  if (ids.empty()) return size_t{0};
  const OneOpenMpThread one_thread;
  const faiss::IDSelectorBatch selector(ids.size(), ids.data());
  size_t removed = 0;
  const auto lock = lock_to_write();
  RAG_RETURN_IF_ERROR(call_faiss("remove", [&] { removed = index_->remove_ids(selector); }));
  return removed;
}

absl::StatusOr<std::vector<VectorHit>> FaissIndex::search(std::span<const float> query,
                                                          size_t k) const {
  RAG_CHECK(query.size() == dimension_ && k > 0);
  const OneOpenMpThread one_thread;
  const auto lock = lock_to_read();
  // One more than asked for shows whether a tie crosses the k-th place.
  size_t fetch = k + 1;
  while (true) {
    RAG_ASSIGN_OR_RETURN(std::vector<VectorHit> hits, search_once(query, fetch));
    if (hits.size() <= k) return hits;
    const float last = hits[k - 1].score;
    const bool is_complete = hits.size() < fetch || hits.back().score < last;
    if (is_complete || fetch >= k + kTiesMax) {
      while (hits.back().score < last) hits.pop_back();
      return hits;
    }
    fetch = std::min(2 * fetch, k + kTiesMax);
  }
}

absl::StatusOr<std::vector<VectorHit>> FaissIndex::search_once(std::span<const float> query,
                                                               size_t k) const {
  k = std::min(k, static_cast<size_t>(index_->ntotal));
  std::vector<VectorHit> hits;
  if (k == 0) return hits;
  std::vector<float> scores(k);
  std::vector<int64_t> ids(k);
  RAG_RETURN_IF_ERROR(call_faiss("search", [&] {
    const faiss::IndexIVFFlat* ivf = as_ivf(*index_);
    faiss::SearchParametersIVF parameters;
    if (ivf != nullptr) parameters.nprobe = std::min<size_t>(probes_, ivf->nlist);
    index_->search(1, query.data(), static_cast<int64_t>(k), scores.data(), ids.data(),
                   ivf != nullptr ? &parameters : nullptr);
  }));
  for (size_t i = 0; i < k && ids[i] >= 0; ++i) hits.push_back({scores[i], ids[i]});
  std::ranges::sort(hits, [](const VectorHit& a, const VectorHit& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
  return hits;
}

size_t FaissIndex::size() const {
  const auto lock = lock_to_read();
  return static_cast<size_t>(index_->ntotal);
}

std::vector<int64_t> FaissIndex::ids() const {
  std::vector<int64_t> ids;
  {
    const auto lock = lock_to_read();
    if (const faiss::IndexIVFFlat* ivf = as_ivf(*index_)) {
      for (size_t list = 0; list < ivf->nlist; ++list) {
        faiss::InvertedLists::ScopedIds list_ids(ivf->invlists, list);
        ids.insert(ids.end(), list_ids.get(), list_ids.get() + ivf->get_list_size(list));
      }
    } else {
      const auto& map = dynamic_cast<const faiss::IndexIDMap&>(*index_);
      ids.assign(map.id_map.begin(), map.id_map.end());
    }
  }
  std::ranges::sort(ids);
  return ids;
}

uint32_t FaissIndex::lists() const {
  const auto lock = lock_to_read();
  const faiss::IndexIVFFlat* ivf = as_ivf(*index_);
  return ivf != nullptr ? static_cast<uint32_t>(ivf->nlist) : 0;
}

VectorBlock FaissIndex::copy_vectors() const {
  VectorBlock block;
  const auto lock = lock_to_read();
  const auto count = static_cast<size_t>(index_->ntotal);
  block.ids.reserve(count);
  block.vectors.reserve(count * dimension_);
  if (const faiss::IndexIVFFlat* ivf = as_ivf(*index_)) {
    for (size_t list = 0; list < ivf->nlist; ++list) {
      const size_t size = ivf->get_list_size(list);
      faiss::InvertedLists::ScopedIds ids(ivf->invlists, list);
      faiss::InvertedLists::ScopedCodes codes(ivf->invlists, list);
      const auto* vectors = reinterpret_cast<const float*>(codes.get());
      block.ids.insert(block.ids.end(), ids.get(), ids.get() + size);
      block.vectors.insert(block.vectors.end(), vectors, vectors + size * dimension_);
    }
  } else {
    const auto& map = dynamic_cast<const faiss::IndexIDMap&>(*index_);
    const float* vectors = flat_of(map)->get_xb();
    block.ids.assign(map.id_map.begin(), map.id_map.end());
    block.vectors.assign(vectors, vectors + count * dimension_);
  }
  return block;
}

absl::Status FaissIndex::write(faiss::IOWriter& writer) const {
  const auto lock = lock_to_read();
  return call_faiss("write", [&] { faiss::write_index(index_.get(), &writer); });
}

}  // namespace ragcache::retrieval
