#include "services/retrieval/index/ivf_index.h"

#include <faiss/IndexIVF.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/impl/ScalarQuantizer.h>
#include <faiss/utils/Heap.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "services/retrieval/index/faiss_calls.h"

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

void append_row(std::span<const uint8_t> rows, size_t row, size_t row_size,
                std::vector<uint8_t>& to) {
  const auto values = rows.subspan(row * row_size, row_size);
  to.insert(to.end(), values.begin(), values.end());
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
    : FaissIndex(name_of(trained.info), trained.info.dimension),
      trained_(std::move(trained)),
      probes_(probes),
      refine_factor_(trained_.info.kind == kIvfPqKind ? refine_factor : 0),
      half_(std::make_unique<faiss::ScalarQuantizer>(trained_.info.dimension,
                                                     faiss::ScalarQuantizer::QT_fp16)),
      lists_(trained_.info.lists) {
  RAG_CHECK(probes_ > 0 && probes_ <= lists_.size());
}

IvfIndex::~IvfIndex() = default;

size_t IvfIndex::code_size() const { return trained_.index->code_size; }

size_t IvfIndex::original_size() const { return half_->code_size; }

absl::StatusOr<std::unique_ptr<IvfIndex>> IvfIndex::read(SpanReader& reader, TrainedState trained,
                                                         uint32_t probes, uint32_t refine_factor) {
  auto index = std::make_unique<IvfIndex>(std::move(trained), probes, refine_factor);
  for (uint32_t number = 0; number < index->lists_.size(); ++number) {
    List& list = index->lists_[number];
    uint64_t count = 0;
    if (!reader.read(count) || !reader.read(list.ids, count) ||
        !reader.read(list.codes, count * index->code_size()) ||
        (index->refines() && !reader.read(list.originals, count * index->original_size()))) {
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
  // Encoding needs no lock: the trained state never changes.
  std::vector<int64_t> list_of(ids.size());
  std::vector<uint8_t> codes(ids.size() * code_size());
  std::vector<uint8_t> originals(refines() ? ids.size() * original_size() : 0);
  RAG_RETURN_IF_ERROR(call_faiss("add", [&] {
    const auto count = static_cast<int64_t>(ids.size());
    trained_.index->quantizer->assign(count, vectors.data(), list_of.data());
    trained_.index->encode_vectors(count, vectors.data(), list_of.data(), codes.data());
    if (refines()) half_->compute_codes(vectors.data(), originals.data(), ids.size());
  }));
  const auto lock = lock_to_write();
  return call_faiss("add", [&] {
    for (size_t i = 0; i < ids.size(); ++i) {
      List& list = lists_[static_cast<size_t>(list_of[i])];
      const Place place = {static_cast<uint32_t>(list_of[i]),
                           static_cast<uint32_t>(list.ids.size())};
      RAG_CHECK(place_of_.emplace(ids[i], place).second);
      list.ids.push_back(ids[i]);
      append_row(codes, i, code_size(), list.codes);
      if (refines()) append_row(originals, i, original_size(), list.originals);
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
    if (refines()) move_last_row(list.originals, place.offset, original_size());
    place_of_[moved] = place;
    place_of_.erase(id);
    ++removed;
  }
  return removed;
}

absl::Status IvfIndex::scan(std::span<const float> query, size_t k, const IdFilter* filter,
                            std::vector<VectorHit>& hits) const {
  std::vector<float> scores(k);
  std::vector<int64_t> ids(k);
  RAG_RETURN_IF_ERROR(call_faiss("search", [&] {
    const faiss::IndexIVF& index = *trained_.index;
    std::vector<float> list_scores(probes_);
    std::vector<int64_t> lists(probes_);
    index.quantizer->search(1, query.data(), probes_, list_scores.data(), lists.data());
    std::optional<FilterSelector> selector;
    if (filter != nullptr) selector.emplace(*filter);
    const std::unique_ptr<faiss::InvertedListScanner> scanner(
        index.get_InvertedListScanner(false, selector ? &*selector : nullptr));
    scanner->set_query(query.data());
    faiss::minheap_heapify(k, scores.data(), ids.data());
    for (uint32_t i = 0; i < probes_; ++i) {
      const List& list = lists_[static_cast<size_t>(lists[i])];
      scanner->set_list(lists[i], list_scores[i]);
      scanner->scan_codes(list.ids.size(), list.codes.data(), list.ids.data(), scores.data(),
                          ids.data(), k);
    }
  }));
  for (size_t i = 0; i < k; ++i) {
    if (ids[i] >= 0) hits.push_back({scores[i], ids[i], scores[i]});
  }
  return absl::OkStatus();
}

void IvfIndex::rescore(std::span<const float> query, std::span<VectorHit> hits) const {
  if (!refines()) return;
  const std::unique_ptr<faiss::ScalarQuantizer::SQDistanceComputer> computer(
      half_->get_distance_computer(faiss::METRIC_INNER_PRODUCT));
  computer->set_query(query.data());
  for (VectorHit& hit : hits) {
    const Place place = place_of_.at(hit.id);
    hit.score = computer->query_to_code(lists_[place.list].originals.data() +
                                        place.offset * original_size());
  }
}

void IvfIndex::append_ids(std::vector<int64_t>& ids) const {
  for (const List& list : lists_) ids.insert(ids.end(), list.ids.begin(), list.ids.end());
}

size_t IvfIndex::memory_bytes_locked() const {
  size_t bytes =
      trained_.bytes.size() * 2 + place_of_.capacity() * (sizeof(*place_of_.begin()) + 1);
  for (const List& list : lists_) {
    bytes +=
        list.ids.capacity() * sizeof(int64_t) + list.codes.capacity() + list.originals.capacity();
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
