#include "services/retrieval/index/vector_index.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "services/retrieval/index/faiss_calls.h"

namespace ragcache::retrieval {
namespace {

// Keeps the best `count` by `key` and what ties with the last of them.
void keep_best(std::vector<VectorHit>& hits, size_t count, float VectorHit::*key) {
  std::ranges::sort(hits, [key](const VectorHit& a, const VectorHit& b) {
    return a.*key != b.*key ? a.*key > b.*key : a.id < b.id;
  });
  if (hits.size() <= count) return;
  size_t end = count;
  while (end < hits.size() && hits[end].*key == hits[count - 1].*key) ++end;
  hits.resize(std::min(end, count + VectorIndex::kTiesMax));
}

}  // namespace

std::vector<VectorHit> best_hits(Candidates candidates, size_t k) {
  RAG_CHECK(k > 0);
  keep_best(candidates.hits, std::max(candidates.limit, k), &VectorHit::candidate_score);
  keep_best(candidates.hits, k, &VectorHit::score);
  return std::move(candidates.hits);
}

std::shared_lock<std::shared_mutex> VectorIndex::lock_to_read() const {
  const std::lock_guard gate(gate_);
  return std::shared_lock(mutex_);
}

std::unique_lock<std::shared_mutex> VectorIndex::lock_to_write() {
  const std::lock_guard gate(gate_);
  return std::unique_lock(mutex_);
}

absl::StatusOr<Candidates> VectorIndex::candidates(std::span<const float> query, size_t k,
                                                   const IdFilter* filter) const {
  RAG_CHECK(query.size() == dimension_ && k > 0);
  Candidates found;
  const auto lock = lock_to_read();
  const size_t size = size_locked();
  found.limit = k * refine_factor();
  if (size == 0) return found;
  // One more than asked for shows whether a tie crosses the last place.
  for (size_t fetch = found.limit + 1;; fetch = std::min(2 * fetch, found.limit + kTiesMax)) {
    found.hits.clear();
    RAG_RETURN_IF_ERROR(
        call_faiss("search", [&] { scan(query, std::min(fetch, size), filter, found.hits); }));
    if (found.hits.size() < fetch || fetch == found.limit + kTiesMax) break;
    const auto by_score = [](const VectorHit& a, const VectorHit& b) {
      return a.candidate_score > b.candidate_score;
    };
    const auto last = found.hits.begin() + static_cast<ptrdiff_t>(found.limit) - 1;
    std::ranges::nth_element(found.hits, last, by_score);
    const float score = last->candidate_score;
    const auto ties_end = std::partition(last, found.hits.end(), [score](const VectorHit& hit) {
      return hit.candidate_score == score;
    });
    if (ties_end != found.hits.end()) {
      found.hits.erase(ties_end, found.hits.end());
      break;
    }
  }
  rescore(query, found.hits);
  return found;
}

absl::StatusOr<std::vector<VectorHit>> VectorIndex::search(std::span<const float> query, size_t k,
                                                           const IdFilter* filter) const {
  RAG_ASSIGN_OR_RETURN(Candidates found, candidates(query, k, filter));
  return best_hits(std::move(found), k);
}

size_t VectorIndex::size() const {
  const auto lock = lock_to_read();
  return size_locked();
}

std::vector<int64_t> VectorIndex::ids() const {
  std::vector<int64_t> ids;
  {
    const auto lock = lock_to_read();
    ids.reserve(size_locked());
    append_ids(ids);
  }
  std::ranges::sort(ids);
  return ids;
}

size_t VectorIndex::memory_bytes() const {
  const auto lock = lock_to_read();
  return memory_bytes_locked();
}

absl::Status VectorIndex::write(faiss::IOWriter& writer) const {
  const auto lock = lock_to_read();
  return call_faiss("write", [&] { write_locked(writer); });
}

}  // namespace ragcache::retrieval
