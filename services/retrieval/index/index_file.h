#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/hash.h"
#include "services/retrieval/index/faiss_index.h"
#include "services/retrieval/index/index_options.h"

// The file of an index: a header that says what the index is of, its trained state if it has one,
// and its vectors. All are covered by SHA-256, because Faiss' reader trusts the lengths it finds.
namespace ragcache::retrieval {

// Says what an index file belongs to; a file of another store or model is not used.
struct IndexIdentity {
  Digest store_id = {};
  Digest embedding_model = {};

  bool operator==(const IndexIdentity&) const = default;
};

absl::Status save_index_file(const std::string& path, const FaissIndex& index,
                             const IndexOptions& options, const IndexIdentity& identity);

// Errors as GrowingIndex::load().
absl::StatusOr<std::shared_ptr<FaissIndex>> load_index_file(const std::string& path,
                                                            const IndexOptions& options,
                                                            const IndexIdentity& identity);

}  // namespace ragcache::retrieval
