#include "services/retrieval/router/merge.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ragcache::retrieval {

std::vector<VectorHit> merge(std::vector<Candidates> parts, size_t k, const IndexOptions& options) {
  Candidates all;
  for (Candidates& part : parts) {
    all.limit += part.limit;
    std::ranges::move(part.hits, std::back_inserter(all.hits));
  }
  // In one index min(k, its size) times the refine factor compete.
  const bool refines = options.kind == IndexOptions::Kind::kIvfPq && options.refine_factor > 0;
  all.limit = std::min(all.limit, k * (refines ? options.refine_factor : 1));
  return best_hits(std::move(all), k);
}

}  // namespace ragcache::retrieval
