#include "services/retrieval/index/ivf_index.h"

#include <faiss/IndexFlat.h>
#include <faiss/IndexIVF.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/utils/Heap.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "kernels/half/half.h"
#include "services/retrieval/index/faiss_calls.h"
#include "services/retrieval/index/scan.h"

namespace ragcache::retrieval {
namespace {

class FilterSelector : public faiss::IDSelector {
 public:
  explicit FilterSelector(const IdFilter& filter) : filter_(filter) {}
  bool is_member(idx_t id) const override { return filter_.allows(id); }

 private:
  const IdFilter& filter_;
};

std::string_view name_of(const TrainedInfo& info) {
  if (info.kind == kIvfPqKind) return kIvfPqKind;
  if (info.kind == kIvfSq8Kind) return kIvfSq8Kind;
  return kIvfFlatKind;
}

// The last of `row_size` values moves to row `to`.
template <typename T>
void move_last_row(std::vector<T>& rows, size_t to, size_t row_size) {
  const auto last = rows.end() - static_cast<ptrdiff_t>(row_size);
  std::copy(last, rows.end(), rows.begin() + static_cast<ptrdiff_t>(to * row_size));
  rows.erase(last, rows.end());
}

}  // namespace

IvfIndex::IvfIndex(TrainedState trained, uint32_t probes, uint32_t refine_factor)
    : VectorIndex(name_of(trained.info), trained.info.dimension),
      trained_(std::move(trained)),
      probes_(probes),
      refine_factor_(trained_.info.kind == kIvfPqKind ? refine_factor : 0),
      lists_(trained_.info.lists) {
  RAG_CHECK(probes_ > 0 && probes_ <= lists_.size());
}

IvfIndex::~IvfIndex() = default;

size_t IvfIndex::code_size() const { return trained_.index->code_size; }

const float* IvfIndex::centroid(size_t list) const {
  const auto* quantizer = static_cast<const faiss::IndexFlat*>(trained_.index->quantizer);
  return quantizer->get_xb() + list * dimension();
}

absl::StatusOr<std::unique_ptr<IvfIndex>> IvfIndex::read(SpanReader& reader, TrainedState trained,
                                                         uint32_t probes, uint32_t refine_factor) {
  auto index = std::make_unique<IvfIndex>(std::move(trained), probes, refine_factor);
  for (uint32_t number = 0; number < index->lists_.size(); ++number) {
    List& list = index->lists_[number];
    uint64_t count = 0;
    if (!reader.read(count) || !reader.read(list.ids, count) ||
        !reader.read(list.codes, count * index->code_size()) ||
        (index->refines() && !reader.read(list.originals, count * index->dimension()))) {
      return absl::DataLossError("vector index: inverted lists end early");
    }
    for (uint32_t offset = 0; offset < count; ++offset) {
      if (!index->place_of_.emplace(list.ids[offset], Place{number, offset}).second) {
        return absl::DataLossError("vector index: a vector occurs twice");
      }
    }
  }
  return index;
}

absl::Status IvfIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  RAG_CHECK(vectors.size() == ids.size() * dimension());
  // Encoding needs no lock: the trained state never changes. It goes vector by vector: Faiss' way
  // to do many at once rounds in another order, and then their number decides where one goes.
  std::vector<int64_t> list_of(ids.size());
  std::vector<uint8_t> codes(ids.size() * code_size());
  RAG_RETURN_IF_ERROR(call_faiss("add", [&] {
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto vector = vectors.subspan(i * dimension(), dimension());
      list_of[i] = nearest_lists(vector, 1).front().id;
      trained_.index->encode_vectors(1, vector.data(), &list_of[i], codes.data() + i * code_size());
    }
  }));
  const auto lock = lock_to_write();
  return call_faiss("add", [&] {
    for (size_t i = 0; i < ids.size(); ++i) {
      List& list = lists_[static_cast<size_t>(list_of[i])];
      const Place place = {static_cast<uint32_t>(list_of[i]),
                           static_cast<uint32_t>(list.ids.size())};
      RAG_CHECK(place_of_.emplace(ids[i], place).second);
      list.ids.push_back(ids[i]);
      const auto code = std::span(codes).subspan(i * code_size(), code_size());
      list.codes.insert(list.codes.end(), code.begin(), code.end());
      if (!refines()) continue;
      for (const float x : vectors.subspan(i * dimension(), dimension())) {
        list.originals.push_back(kernels::to_half(x));
      }
    }
  });
}

absl::StatusOr<size_t> IvfIndex::remove(std::span<const int64_t> ids) {
  size_t removed = 0;
  const auto lock = lock_to_write();
  for (const int64_t id : ids) {
    const auto found = place_of_.find(id);
    if (found == place_of_.end()) continue;
    const Place place = found->second;
    List& list = lists_[place.list];
    const int64_t moved = list.ids.back();
    move_last_row(list.ids, place.offset, 1);
    move_last_row(list.codes, place.offset, code_size());
    if (refines()) move_last_row(list.originals, place.offset, dimension());
    place_of_[moved] = place;
    place_of_.erase(id);
    ++removed;
  }
  return removed;
}

// The ids of these hits are the lists' numbers.
std::vector<VectorHit> IvfIndex::nearest_lists(std::span<const float> query, size_t count) const {
  std::vector<VectorHit> lists;
  BestHits best(count, lists);
  for (size_t list = 0; list < lists_.size(); ++list) {
    best.offer(inner_product(query, centroid(list)), static_cast<int64_t>(list));
  }
  return lists;
}

void IvfIndex::scan(std::span<const float> query, size_t k, const IdFilter* filter,
                    std::vector<VectorHit>& hits) const {
  const std::vector<VectorHit> lists = nearest_lists(query, probes_);
  if (kind() == kIvfPqKind) return scan_product_codes(query, lists, k, filter, hits);
  BestHits best(k, hits);
  const auto scan_rows = [&]<typename Row>(const Row& score_of) {
    for (const VectorHit& probed : lists) {
      const List& list = lists_[static_cast<size_t>(probed.id)];
      for (size_t i = 0; i < list.ids.size(); ++i) {
        if (filter != nullptr && !filter->allows(list.ids[i])) continue;
        best.offer(score_of(list.codes.data() + i * code_size()), list.ids[i]);
      }
    }
  };
  if (kind() == kIvfFlatKind) {
    scan_rows([&](const uint8_t* code) {
      return inner_product(query, reinterpret_cast<const float*>(code));
    });
    return;
  }
  // A code c stands for minimum + range · (c + 1/2) / 255, so what does not depend on c is summed
  // up once.
  const auto& scalar = static_cast<const faiss::IndexIVFScalarQuantizer&>(*trained_.index).sq;
  std::vector<float> weights(dimension());
  double base = 0;
  for (size_t i = 0; i < dimension(); ++i) {
    weights[i] = query[i] * scalar.trained[dimension() + i] / 255;
    base += double{query[i]} * scalar.trained[i] + 0.5 * weights[i];
  }
  const auto offset = static_cast<float>(base);
  scan_rows([&](const uint8_t* code) { return offset + inner_product(weights, code); });
}

void IvfIndex::scan_product_codes(std::span<const float> query, std::span<const VectorHit> lists,
                                  size_t k, const IdFilter* filter,
                                  std::vector<VectorHit>& hits) const {
  std::optional<FilterSelector> selector;
  if (filter != nullptr) selector.emplace(*filter);
  const std::unique_ptr<faiss::InvertedListScanner> scanner(
      trained_.index->get_InvertedListScanner(false, selector ? &*selector : nullptr));
  std::vector<float> scores(k);
  std::vector<int64_t> ids(k);
  scanner->set_query(query.data());
  faiss::minheap_heapify(k, scores.data(), ids.data());
  for (const VectorHit& probed : lists) {
    const List& list = lists_[static_cast<size_t>(probed.id)];
    scanner->set_list(probed.id, probed.score);
    scanner->scan_codes(list.ids.size(), list.codes.data(), list.ids.data(), scores.data(),
                        ids.data(), k);
  }
  for (size_t i = 0; i < k; ++i) {
    if (ids[i] >= 0) hits.push_back({scores[i], ids[i], scores[i]});
  }
}

void IvfIndex::rescore(std::span<const float> query, std::span<VectorHit> hits) const {
  if (!refines()) return;
  for (VectorHit& hit : hits) {
    const Place place = place_of_.at(hit.id);
    hit.score = inner_product(
        query, lists_[place.list].originals.data() + size_t{place.offset} * dimension());
  }
}

void IvfIndex::append_ids(std::vector<int64_t>& ids) const {
  for (const List& list : lists_) ids.insert(ids.end(), list.ids.begin(), list.ids.end());
}

size_t IvfIndex::memory_bytes_locked() const {
  size_t bytes =
      trained_.bytes.size() * 2 + place_of_.capacity() * (sizeof(*place_of_.begin()) + 1);
  for (const List& list : lists_) {
    bytes += list.ids.capacity() * sizeof(int64_t) + list.codes.capacity() +
             list.originals.capacity() * sizeof(uint16_t);
  }
  return bytes;
}

void IvfIndex::write_locked(faiss::IOWriter& writer) const {
  for (const List& list : lists_) {
    write_number(writer, list.ids.size());
    write_values(writer, list.ids);
    write_values(writer, list.codes);
    write_values(writer, list.originals);
  }
}

}  // namespace ragcache::retrieval
