#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
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

namespace ragcache::retrieval {

// Names one version of a document's vector. Grows with every stored version and is never used
// again, so that an index entry never stands for another text than the one it was made from.
using VectorId = int64_t;

// What a client gives.
struct DocumentText {
  std::string id;
  std::string title;
  std::string text;
};

// SHA-256 over the title's length (64-bit little-endian), the title and the text.
Digest content_digest(std::string_view title, std::string_view text);

// A document as it is stored.
struct DocumentRecord {
  std::string id;
  std::string title;
  std::string text;
  Digest content_digest = {};
  std::vector<uint32_t> segment_tokens;
  Digest token_digest = {};
};

struct DocumentSummary {
  std::string id;
  std::string title;
  Digest content_digest = {};
  Digest token_digest = {};
};

// What stored embeddings and tokens were made with. A document made with others is stale.
struct DocumentSources {
  Digest embedding_model = {};
  Digest tokenizer = {};
  uint32_t dimension = 0;
};

class DocumentWriter;

// The documents of one corpus in an SQLite file, with their embeddings and segment tokens.
//
// One process at a time (a lock file in the folder). Any thread: one writer at a time holds the
// write connection through a DocumentWriter; readers have connections of their own, see the last
// committed state, and never wait for a writer. What commit() acknowledged survives a power cut.
class DocumentStore {
 public:
  // Opens or creates documents.db in `folder`, for at most `readers` concurrent reads (more wait).
  // DATA_LOSS: damaged file. UNAVAILABLE: in use elsewhere. FAILED_PRECONDITION: a layout of
  // another program version. REQUIRES: readers > 0.
  static absl::StatusOr<std::unique_ptr<DocumentStore>> open(const std::string& folder,
                                                             const DocumentSources& sources,
                                                             int readers);
  ~DocumentStore();

  // Random, made with the file: tells an index file of this store from one of another.
  const Digest& store_id() const { return store_id_; }
  uint64_t document_count() const { return document_count_; }

  // Entry i: whether that id is stored with that content, from the sources of this store.
  absl::StatusOr<std::vector<bool>> are_current(std::span<const DocumentText> documents);

  // Entry i belongs to the i-th key; empty if there is none. All from one state of the store.
  absl::StatusOr<std::vector<std::optional<DocumentRecord>>> find_by_vector(
      std::span<const VectorId> vectors);
  absl::StatusOr<std::vector<std::optional<DocumentRecord>>> find_by_id(
      std::span<const std::string> ids);
  // Ids greater than `after_id`, ascending by bytes.
  absl::StatusOr<std::vector<DocumentSummary>> list(std::string_view after_id, uint32_t limit);

  // Vectors made by this store's embedding model, ascending.
  absl::StatusOr<std::vector<VectorId>> current_vectors();
  // Calls `visit(id, embedding)` for those of `vectors` that are stored.
  absl::Status read_embeddings(std::span<const VectorId> vectors,
                               const std::function<void(VectorId, std::span<const float>)>& visit);

  // Documents whose tokens or embedding come from other sources than this store's.
  struct StaleDocument {
    DocumentText text;
    std::optional<std::vector<float>> embedding;  // if it is still good
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

  DocumentStore();
  absl::Status create_layout(const std::string& path);
  absl::StatusOr<int64_t> source_number(std::string_view kind, const Digest& fingerprint);
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

  std::mutex readers_mutex_;
  std::condition_variable reader_returned_;
  std::vector<std::unique_ptr<Reader>> readers_;  // idle ones; guarded by readers_mutex_
};

// One write transaction; holds the store's write lock until it goes. Without commit() nothing
// happened.
class DocumentWriter {
 public:
  struct Stored {
    VectorId vector = 0;
    std::optional<VectorId> replaced;  // the vector of the version before
  };

  DocumentWriter(DocumentWriter&&) = default;

  // REQUIRES: embedding has the store's dimension.
  absl::StatusOr<Stored> put(const DocumentRecord& document, std::span<const float> embedding);
  // The vector of the erased document, if there was one.
  absl::StatusOr<std::optional<VectorId>> erase(std::string_view id);
  absl::Status commit();

 private:
  friend class DocumentStore;
  DocumentWriter(DocumentStore* store, std::unique_lock<std::mutex> lock,
                 SqliteTransaction transaction)
      : store_(store), lock_(std::move(lock)), transaction_(std::move(transaction)) {}

  DocumentStore* store_;
  std::unique_lock<std::mutex> lock_;
  SqliteTransaction transaction_;  // ends before the lock is released
  int64_t count_change_ = 0;
};

}  // namespace ragcache::retrieval
