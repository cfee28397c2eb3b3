#pragma once

#include <cstddef>
#include <vector>

#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

// The k best of a corpus, and those that tie with the last of them, from what its shards found for
// this k: best first, ties by id. The same as one index over all shards would have given, for kinds
// whose shards share their trained state; for graphs no worse. REQUIRES: k > 0.
std::vector<VectorHit> merge(std::vector<Candidates> parts, size_t k, const IndexOptions& options);

}  // namespace ragcache::retrieval
