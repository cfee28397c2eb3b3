#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/store/sqlite.h"
#include "services/retrieval/documents/document_store.h"

namespace ragcache::retrieval {

// One write transaction; holds the store's write lock until it goes. Without commit() nothing
// happened.
class DocumentWriter {
 public:
  // Removals that a corpus' log holds at most; beyond, the older half is forgotten.
  static constexpr uint64_t kRemovalsMax = 65'536;

  struct Stored {
    std::vector<VectorId> vectors;   // of the pieces, in order
    std::vector<VectorId> replaced;  // of the version before
  };

  DocumentWriter(DocumentWriter&&) = default;

  // embeddings: [pieces.size(), dimension]. REQUIRES: at least one piece.
  absl::StatusOr<Stored> put(CorpusNumber corpus, const DocumentText& document,
                             const ChunkOptions& cut, std::span<const Piece> pieces,
                             std::span<const float> embeddings);
  // The vectors of the erased document, ascending; none if there was no such document.
  absl::StatusOr<std::vector<VectorId>> erase(CorpusNumber corpus, std::string_view id);
  absl::Status commit();

 private:
  friend class DocumentStore;
  DocumentWriter(DocumentStore* store, std::unique_lock<std::mutex> lock,
                 SqliteTransaction transaction)
      : store_(store), lock_(std::move(lock)), transaction_(std::move(transaction)) {}

  absl::StatusOr<DocumentStore::CorpusState*> state_of(CorpusNumber corpus);
  absl::Status write_log_position(DocumentStore::CorpusState& state);

  DocumentStore* store_;
  std::unique_lock<std::mutex> lock_;
  SqliteTransaction transaction_;                               // ends before the lock is released
  std::map<CorpusNumber, DocumentStore::CorpusState> changed_;  // as they are after the commit
};

}  // namespace ragcache::retrieval
