#include "services/retrieval/index/vector_index.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"

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

absl::StatusOr<std::vector<VectorHit>> VectorIndex::search(std::span<const float> query, size_t k,
                                                           const IdFilter* filter) const {
  RAG_ASSIGN_OR_RETURN(Candidates found, candidates(query, k, filter));
  return best_hits(std::move(found), k);
}

}  // namespace ragcache::retrieval
