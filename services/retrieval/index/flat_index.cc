#include "services/retrieval/index/flat_index.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "services/retrieval/index/faiss_calls.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/scan.h"

namespace ragcache::retrieval {
FlatIndex::FlatIndex(uint32_t dimension) : VectorIndex(kExactKind, dimension) {}

absl::StatusOr<std::unique_ptr<FlatIndex>> FlatIndex::read(SpanReader& reader, uint32_t dimension) {
  auto index = std::make_unique<FlatIndex>(dimension);
  uint64_t count = 0;
  if (!reader.read(count) || !reader.read(index->ids_, count) ||
      !reader.read(index->rows_, count * dimension)) {
    return absl::DataLossError("vector index: vectors end early");
  }
  for (size_t row = 0; row < count; ++row) index->row_of_[index->ids_[row]] = row;
  return index;
}

absl::Status FlatIndex::add(std::span<const int64_t> ids, std::span<const float> vectors) {
  RAG_CHECK(vectors.size() == ids.size() * dimension());
  const auto lock = lock_to_write();
  return call_faiss("add", [&] {
    rows_.insert(rows_.end(), vectors.begin(), vectors.end());
    for (const int64_t id : ids) {
      RAG_CHECK(row_of_.emplace(id, ids_.size()).second);
      ids_.push_back(id);
    }
  });
}

absl::StatusOr<size_t> FlatIndex::remove(std::span<const int64_t> ids) {
  size_t removed = 0;
  const auto lock = lock_to_write();
  for (const int64_t id : ids) {
    const auto found = row_of_.find(id);
    if (found == row_of_.end()) continue;
    const size_t row = found->second;
    row_of_.erase(found);
    const size_t last = ids_.size() - 1;
    if (row != last) {
      ids_[row] = ids_[last];
      std::copy_n(rows_.data() + last * dimension(), dimension(), rows_.data() + row * dimension());
      row_of_[ids_[row]] = row;
    }
    ids_.pop_back();
    rows_.resize(last * dimension());
    ++removed;
  }
  return removed;
}

void FlatIndex::scan(std::span<const float> query, size_t k, const IdFilter* filter,
                     std::vector<VectorHit>& hits) const {
  BestHits best(k, hits);
  for (size_t row = 0; row < ids_.size(); ++row) {
    if (filter != nullptr && !filter->allows(ids_[row])) continue;
    best.offer(inner_product(query, rows_.data() + row * dimension()), ids_[row]);
  }
}

void FlatIndex::append_ids(std::vector<int64_t>& ids) const {
  ids.insert(ids.end(), ids_.begin(), ids_.end());
}

size_t FlatIndex::memory_bytes_locked() const {
  return ids_.capacity() * sizeof(int64_t) + rows_.capacity() * sizeof(float) +
         row_of_.capacity() * (sizeof(*row_of_.begin()) + 1);
}

void FlatIndex::write_locked(faiss::IOWriter& writer) const {
  write_number(writer, ids_.size());
  write_values(writer, ids_);
  write_values(writer, rows_);
}

}  // namespace ragcache::retrieval
