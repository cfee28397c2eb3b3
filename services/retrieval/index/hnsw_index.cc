#include "services/retrieval/index/hnsw_index.h"

#include <faiss/IndexHNSW.h>
#include <faiss/impl/AuxIndexStructures.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/index_io.h>
#include <faiss/utils/Heap.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/index/faiss_calls.h"
#include "services/retrieval/index/scan.h"

namespace ragcache::retrieval {
namespace {

constexpr int64_t kTombstone = -1;
// Vectors linked under one hold of the lock: what a search may have to wait for.
constexpr size_t kAddChunk = 8;
// The index is built anew when one node in so many is a tombstone, and there are this many.
constexpr size_t kCompactionShare = 4;
constexpr size_t kTombstonesMin = 256;
// Nodes by which the share that a search may return is judged.
constexpr size_t kShareSample = 512;
// Below this share a scan of the allowed is cheaper than a graph search that finds k of them.
constexpr double kGraphShareMin = 1.0 / 16;

class NodeSelector : public faiss::IDSelector {
 public:
  NodeSelector(const std::vector<int64_t>& ids, const IdFilter* filter)
      : ids_(ids), filter_(filter) {}
  bool is_member(idx_t node) const override {
    const int64_t id = ids_[static_cast<size_t>(node)];
    return id != kTombstone && (filter_ == nullptr || filter_->allows(id));
  }

 private:
  const std::vector<int64_t>& ids_;
  const IdFilter* filter_;
};

// Faiss asks for the product of the query it set with a node's row.
class Product : public faiss::FlatCodesDistanceComputer {
 public:
  Product(const uint8_t* rows, size_t dimension)
      : FlatCodesDistanceComputer(rows, dimension * sizeof(float)), dimension_(dimension) {}

  void set_query(const float* query) override { query_ = {query, dimension_}; }
  float distance_to_code(const uint8_t* row) override {
    return inner_product(query_, reinterpret_cast<const float*>(row));
  }
  float symmetric_dis(idx_t a, idx_t b) override {
    const auto row = [this](idx_t node) {
      return reinterpret_cast<const float*>(codes + static_cast<size_t>(node) * code_size);
    };
    return inner_product({row(a), dimension_}, row(b));
  }

 private:
  const size_t dimension_;
  std::span<const float> query_;
};

// The graph search looks for the least.
class NegatedProduct : public faiss::DistanceComputer {
 public:
  NegatedProduct(const uint8_t* rows, size_t dimension) : product_(rows, dimension) {}

  void set_query(const float* query) override { product_.set_query(query); }
  float operator()(idx_t node) override { return -product_(node); }
  float symmetric_dis(idx_t a, idx_t b) override { return -product_.symmetric_dis(a, b); }

 private:
  Product product_;
};

// Rows whose products are those of searches, so that the graph is built by them too.
class Rows : public faiss::IndexFlatIP {
 public:
  using faiss::IndexFlatIP::IndexFlatIP;
  faiss::FlatCodesDistanceComputer* get_FlatCodesDistanceComputer() const override {
    return new Product(codes.data(), static_cast<size_t>(d));
  }
};

void own_rows(faiss::IndexHNSWFlat& graph) {
  const std::unique_ptr<faiss::Index> before(graph.storage);
  auto rows = std::make_unique<Rows>(graph.d);
  rows->codes = std::move(static_cast<faiss::IndexFlat&>(*before).codes);
  rows->ntotal = before->ntotal;
  graph.storage = rows.release();
}

}  // namespace

HnswIndex::HnswIndex(const IndexOptions& options)
    : VectorIndex(kHnswKind, options.dimension),
      ef_search_(options.ef_search),
      graph_(std::make_unique<faiss::IndexHNSWFlat>(static_cast<int>(options.dimension),
                                                    static_cast<int>(options.hnsw_m),
                                                    faiss::METRIC_INNER_PRODUCT)) {
  own_rows(*graph_);
  graph_->hnsw.efConstruction = static_cast<int>(options.ef_construction);
}

HnswIndex::~HnswIndex() = default;

absl::StatusOr<std::unique_ptr<HnswIndex>> HnswIndex::read(SpanReader& reader,
                                                           const IndexOptions& options) {
  auto index = std::make_unique<HnswIndex>(options);
  uint64_t count = 0;
  if (!reader.read(count) || !reader.read(index->ids_, count)) {
    return absl::DataLossError("vector index: ids end early");
  }
  std::unique_ptr<faiss::Index> graph;
  const absl::Status read = call_faiss("read", [&] { graph.reset(faiss::read_index(&reader)); });
  if (!read.ok()) return absl::DataLossError(read.message());
  auto* hnsw = dynamic_cast<faiss::IndexHNSWFlat*>(graph.get());
  if (hnsw == nullptr || dynamic_cast<faiss::IndexFlat*>(hnsw->storage) == nullptr ||
      hnsw->d != static_cast<int>(options.dimension) ||
      hnsw->ntotal != static_cast<int64_t>(count) ||
      hnsw->metric_type != faiss::METRIC_INNER_PRODUCT) {
    return absl::DataLossError("vector index: content does not fit its header");
  }
  if (hnsw->hnsw.nb_neighbors(1) != static_cast<int>(options.hnsw_m)) {
    return absl::FailedPreconditionError(
        str_cat("vector index was built with hnsw_m=", hnsw->hnsw.nb_neighbors(1), ", not ",
                options.hnsw_m));
  }
  hnsw->hnsw.efConstruction = static_cast<int>(options.ef_construction);
  graph.release();
  index->graph_.reset(hnsw);
  own_rows(*hnsw);
  for (size_t node = 0; node < count; ++node) {
    const int64_t id = index->ids_[node];
    if (id != kTombstone && !index->node_of_.emplace(id, static_cast<int32_t>(node)).second) {
      return absl::DataLossError("vector index: a vector occurs twice");
    }
  }
  return index;
}

absl::Status HnswIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  RAG_CHECK(vectors.size() == ids.size() * dimension());
  for (size_t begin = 0; begin < ids.size(); begin += kAddChunk) {
    const size_t count = std::min(kAddChunk, ids.size() - begin);
    const auto lock = lock_to_write();
    RAG_RETURN_IF_ERROR(call_faiss("add", [&] {
      graph_->add(static_cast<int64_t>(count), vectors.data() + begin * dimension());
      for (const int64_t id : ids.subspan(begin, count)) {
        RAG_CHECK(id != kTombstone);
        RAG_CHECK(node_of_.emplace(id, static_cast<int32_t>(ids_.size())).second);
        ids_.push_back(id);
      }
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> HnswIndex::remove(std::span<const int64_t> ids) {
  size_t removed = 0;
  const auto lock = lock_to_write();
  for (const int64_t id : ids) {
    const auto found = node_of_.find(id);
    if (found == node_of_.end()) continue;
    ids_[static_cast<size_t>(found->second)] = kTombstone;
    node_of_.erase(found);
    ++removed;
  }
  return removed;
}

bool HnswIndex::needs_compaction() const {
  const auto lock = lock_to_read();
  const size_t tombstones = ids_.size() - node_of_.size();
  return tombstones >= kTombstonesMin && tombstones * kCompactionShare >= ids_.size();
}

void HnswIndex::scan(std::span<const float> query, size_t k, const IdFilter* filter,
                     std::vector<VectorHit>& hits) const {
  const double share = allowed_share(filter);
  if (share >= kGraphShareMin) {
    const auto ef = static_cast<size_t>(std::ceil(std::max<double>(ef_search_, k) / share));
    scan_graph(query, k, ef, filter, hits);
    if (hits.size() == k) return;
    hits.clear();
  }
  scan_all(query, k, filter, hits);
}

// Of the nodes, by a sample spread evenly over them.
double HnswIndex::allowed_share(const IdFilter* filter) const {
  if (filter == nullptr && node_of_.size() == ids_.size()) return 1;
  const NodeSelector selector(ids_, filter);
  const size_t sample = std::min(kShareSample, ids_.size());
  size_t allowed = 0;
  for (size_t i = 0; i < sample; ++i) {
    allowed += selector.is_member(static_cast<int64_t>(i * ids_.size() / sample));
  }
  return static_cast<double>(allowed) / static_cast<double>(sample);
}

void HnswIndex::scan_graph(std::span<const float> query, size_t k, size_t ef,
                           const IdFilter* filter, std::vector<VectorHit>& hits) const {
  // Faiss 1.7.3 bounds its queue by the number of results, whatever efSearch a search brings.
  const size_t fetch = std::min(std::max(ef, k), ids_.size());
  std::vector<float> distances(fetch);
  std::vector<int64_t> nodes(fetch);
  NegatedProduct distance(rows(), dimension());
  distance.set_query(query.data());
  faiss::VisitedTable visited(static_cast<int>(ids_.size()));
  NodeSelector selector(ids_, filter);
  faiss::SearchParametersHNSW parameters;
  parameters.efSearch = static_cast<int>(fetch);
  if (filter != nullptr || node_of_.size() < ids_.size()) parameters.sel = &selector;
  faiss::maxheap_heapify(fetch, distances.data(), nodes.data());
  graph_->hnsw.search(distance, static_cast<int>(fetch), nodes.data(), distances.data(), visited,
                      &parameters);
  BestHits best(k, hits);
  for (size_t i = 0; i < fetch; ++i) {
    if (nodes[i] >= 0) best.offer(-distances[i], ids_[static_cast<size_t>(nodes[i])]);
  }
}

void HnswIndex::scan_all(std::span<const float> query, size_t k, const IdFilter* filter,
                         std::vector<VectorHit>& hits) const {
  const NodeSelector selector(ids_, filter);
  BestHits best(k, hits);
  for (size_t node = 0; node < ids_.size(); ++node) {
    if (!selector.is_member(static_cast<int64_t>(node))) continue;
    const auto* row = reinterpret_cast<const float*>(rows()) + node * dimension();
    best.offer(inner_product(query, row), ids_[node]);
  }
}

const uint8_t* HnswIndex::rows() const {
  return static_cast<const faiss::IndexFlat*>(graph_->storage)->codes.data();
}

void HnswIndex::append_ids(std::vector<int64_t>& ids) const {
  for (const int64_t id : ids_) {
    if (id != kTombstone) ids.push_back(id);
  }
}

size_t HnswIndex::memory_bytes_locked() const {
  const faiss::HNSW& hnsw = graph_->hnsw;
  return static_cast<const faiss::IndexFlat*>(graph_->storage)->codes.capacity() +
         hnsw.neighbors.capacity() * sizeof(hnsw.neighbors[0]) +
         hnsw.offsets.capacity() * sizeof(hnsw.offsets[0]) +
         hnsw.levels.capacity() * sizeof(hnsw.levels[0]) + ids_.capacity() * sizeof(int64_t) +
         node_of_.capacity() * (sizeof(*node_of_.begin()) + 1);
}

void HnswIndex::write_locked(faiss::IOWriter& writer) const {
  write_number(writer, ids_.size());
  write_values(writer, ids_);
  faiss::write_index(graph_.get(), &writer);
}

}  // namespace ragcache::retrieval
