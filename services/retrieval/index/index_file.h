#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/hash.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/vector_index.h"

// The file of an index: a header that says what the index is of, its trained state if it has one,
// and its vectors. All are covered by SHA-256, because Faiss' reader trusts the lengths it finds.
namespace ragcache::retrieval {

// Says what an index file belongs to; a file of anything else is not used.
struct IndexIdentity {
  Digest store_id = {};
  Digest embedding_model = {};
  int64_t corpus = 0;
  uint64_t generation = 0;

  bool operator==(const IndexIdentity&) const = default;
};

// How far the index has come in the change log of its corpus; its owner knows what that means.
struct IndexPosition {
  uint64_t applied = 0;
  uint64_t floor = 0;
  uint64_t origin = 0;

  bool operator==(const IndexPosition&) const = default;
};

struct LoadedIndex {
  std::shared_ptr<VectorIndex> index;
  IndexPosition position;
};

absl::Status save_index_file(const std::string& path, const VectorIndex& index,
                             const IndexOptions& options, const IndexIdentity& identity,
                             const IndexPosition& position);

// NOT_FOUND: no file. DATA_LOSS: damaged. FAILED_PRECONDITION: of another store, embedding model,
// corpus, generation, program version or options. Each message names the file.
absl::StatusOr<LoadedIndex> load_index_file(const std::string& path, const IndexOptions& options,
                                            const IndexIdentity& identity);

}  // namespace ragcache::retrieval
