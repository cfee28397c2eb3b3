#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "common/store/file.h"
#include "common/store/sqlite.h"
#include "services/retrieval/documents/document.h"

namespace ragcache::retrieval {

// What stored embeddings and tokens were made with. A document made with others is stale.
struct DocumentSources {
  Digest embedding_model = {};
  Digest tokenizer = {};
  uint32_t dimension = 0;
};

class DocumentWriter;

// The corpora of a service in an SQLite file: documents, their pieces with embeddings and segment
// tokens, and a log of changes from which indexes of the vectors are brought up to date.
//
// One process at a time (a lock file in the folder). Any thread: one writer at a time holds the
// write connection through a DocumentWriter; readers have connections of their own, see the last
// committed state, and never wait for a writer. What commit() acknowledged survives a power cut.
//
// A corpus that has been deleted reads as empty; writing to it is NOT_FOUND.
class DocumentStore {
 public:
  // Opens or creates documents.db in `folder`, for at most `readers` concurrent reads (more wait).
  // DATA_LOSS: damaged file. UNAVAILABLE: in use elsewhere. FAILED_PRECONDITION: a layout of a
  // newer program version. REQUIRES: readers > 0.
  static absl::StatusOr<std::unique_ptr<DocumentStore>> open(const std::string& folder,
                                                             const DocumentSources& sources,
                                                             int readers);
  ~DocumentStore();

  // Random, made with the file: tells an index file of this store from one of another.
  const Digest& store_id() const { return store_id_; }

  // By name.
  std::vector<CorpusRecord> corpora() const;
  std::optional<CorpusRecord> find_corpus(std::string_view name) const;
  std::optional<CorpusRecord> find_corpus(CorpusNumber number) const;
  // ALREADY_EXISTS if there is one of this name.
  absl::StatusOr<CorpusRecord> create_corpus(std::string_view name, const CorpusSettings& settings);
  // With its documents. In place of the default corpus there is an empty one of the same settings
  // and another number.
  absl::Status delete_corpus(CorpusNumber number);

  // Of all corpora.
  uint64_t document_count() const { return document_count_; }

  // Entry i: as how many pieces that id is stored, if that is with that content and metadata, from
  // the sources of this store, cut as `cut` says; else 0.
  absl::StatusOr<std::vector<uint32_t>> current_pieces(CorpusNumber corpus, const ChunkOptions& cut,
                                                       std::span<const DocumentText> documents);

  // Entry i belongs to the i-th key; empty if there is none. All from one state of the store.
  absl::StatusOr<std::vector<std::optional<DocumentRecord>>> find_by_vector(
      std::span<const VectorId> vectors);
  // An id may be a document's, which gives its pieces in order, or a piece's.
  absl::StatusOr<std::vector<std::vector<DocumentRecord>>> find_by_id(
      CorpusNumber corpus, std::span<const std::string> ids);
  // Documents of ids greater than `after_id`, ascending by bytes.
  absl::StatusOr<std::vector<DocumentSummary>> list(CorpusNumber corpus, std::string_view after_id,
                                                    uint32_t limit);

  // The corpus' last committed change; they count from 1 and grow, not always by 1.
  uint64_t last_sequence(CorpusNumber corpus) const;
  // Of the next `limit` changes after `position`, those of `part`; from sequence 0 they list the
  // vectors that there are. An addition that has been removed since is left out, so a removal may
  // be of a vector that the reader never saw. Vectors of other embedding models are left out.
  // OUT_OF_RANGE: the log has forgotten removals that the reader needs, or the store has not come
  // to its position (it is an older copy): begin anew from 0. REQUIRES: limit > 0.
  absl::StatusOr<ChangePage> changes_after(CorpusNumber corpus, const LogPosition& position,
                                           uint32_t limit, const LogPart& part = {});
  // Vectors made by this store's embedding model, in the order of their documents' ids and of the
  // pieces in these: equal corpora give them in equal order, however they came to be.
  absl::StatusOr<std::vector<VectorId>> current_vectors(CorpusNumber corpus);
  // Calls `visit(id, embedding)` for those of `vectors` that are stored.
  absl::Status read_embeddings(std::span<const VectorId> vectors,
                               const std::function<void(VectorId, std::span<const float>)>& visit);
  // Calls `visit(vector, metadata)` for each piece of the corpus, vectors ascending.
  absl::Status read_metadata(CorpusNumber corpus,
                             const std::function<void(VectorId, std::string_view)>& visit);

  // Documents of any corpus whose tokens or embeddings come from other sources than this store's.
  struct StaleDocument {
    CorpusNumber corpus = 0;
    DocumentText document;
    struct Piece {
      std::string text;
      std::optional<std::vector<float>> embedding;  // if it is still good
    };
    std::vector<Piece> pieces;
  };
  absl::StatusOr<uint64_t> stale_count();
  absl::StatusOr<std::vector<StaleDocument>> stale(uint32_t limit);

  // Waits for the writer before it.
  absl::StatusOr<DocumentWriter> begin_write();

 private:
  friend class DocumentWriter;
  struct Writer;
  struct Reader;
  class ReaderLease;

  struct CorpusState {
    CorpusRecord record;
    uint64_t sequence = 0;
    uint64_t removals = 0;  // that the log holds
  };

  DocumentStore();
  absl::Status load_store_id();
  absl::Status load_corpora();
  absl::StatusOr<int64_t> source_number(std::string_view kind, const Digest& fingerprint);
  absl::StatusOr<CorpusState> insert_corpus(std::string_view name, const CorpusSettings& settings);
  ReaderLease lease_reader();

  // Constant after open().
  std::optional<FolderLock> lock_;
  Digest store_id_ = {};
  uint32_t dimension_ = 0;
  int64_t embedding_source_ = 0;  // numbers of this store's sources in the file
  int64_t tokenizer_source_ = 0;

  std::atomic<uint64_t> document_count_ = 0;

  std::mutex write_mutex_;
  std::unique_ptr<Writer> writer_;  // guarded by write_mutex_

  mutable std::mutex corpora_mutex_;
  // As committed. Guarded by corpora_mutex_; changed under write_mutex_ as well.
  std::map<CorpusNumber, CorpusState> corpora_;

  std::mutex readers_mutex_;
  std::condition_variable reader_returned_;
  std::vector<std::unique_ptr<Reader>> readers_;  // idle ones; guarded by readers_mutex_
};

}  // namespace ragcache::retrieval
