#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/hash.h"
#include "services/retrieval/index/faiss_index.h"

// The file of an index: a header that says what the index is of, then Faiss' own format. Both are
// covered by SHA-256, because Faiss' reader trusts the lengths it finds.
namespace ragcache::retrieval {

// Says what an index file belongs to; a file of another store or model is not used.
struct IndexIdentity {
  Digest store_id = {};
  Digest embedding_model = {};

  bool operator==(const IndexIdentity&) const = default;
};

struct LoadedIndex {
  std::shared_ptr<FaissIndex> index;
  uint64_t trained_on = 0;
};

absl::Status save_index_file(const std::string& path, const FaissIndex& index, uint32_t dimension,
                             uint64_t trained_on, const IndexIdentity& identity);

// Errors as GrowingIndex::load(). `probes_of` gives a search's probes for a number of lists.
absl::StatusOr<LoadedIndex> load_index_file(const std::string& path, uint32_t dimension,
                                            const IndexIdentity& identity,
                                            const std::function<uint32_t(uint32_t)>& probes_of);

}  // namespace ragcache::retrieval
