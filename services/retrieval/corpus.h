#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/prompt_format.h"
#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/documents/document_writer.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/index/growing_index.h"

namespace ragcache::retrieval {

struct FoundDocument {
  DocumentRecord document;
  float score = 0;
};

// The documents of the service: the store, which is the truth, and the index, which is made from
// it. The index holds a document's vector before the store's commit and loses the old one after it,
// so every committed document can be found at any time; what a search finds in the index and not
// in the store is skipped. The index file may lag behind: open() brings it up to the store.
//
// Any thread. upsert() and erase() block on the disk, upsert() on the embedder too.
class Corpus {
 public:
  struct Ingested {
    uint64_t documents = 0;
    uint64_t tokens = 0;  // embedded; none for documents that were there already
  };

  // Opens or creates the corpus in `folder`. Embeds or tokenises anew what was made with another
  // model or tokenizer; loads the index, or rebuilds it from the store if its file cannot be used.
  // Errors as DocumentStore::open(). The embedder must outlive the corpus.
  static absl::StatusOr<std::unique_ptr<Corpus>> open(const std::string& folder,
                                                      const IndexOptions& index, int readers,
                                                      std::shared_ptr<const PromptFormat> format,
                                                      Embedder& embedder);

  // Stores a batch in one transaction; of an id that occurs twice the later wins, and a document
  // that is there already costs a lookup. When this returns OK the batch is durable and found.
  absl::StatusOr<Ingested> upsert(std::span<const DocumentText> documents, std::stop_token stop);
  // How many of `ids` there were.
  absl::StatusOr<uint64_t> erase(std::span<const std::string> ids);
  // After an ingest: trains the index if its size calls for it, and saves it if enough changed.
  absl::Status settle();
  // Saves the index if anything changed.
  absl::Status save();

  // The k best by cosine, ties by id; fewer only if the corpus has fewer.
  // query: [dimension]. REQUIRES: k > 0.
  absl::StatusOr<std::vector<FoundDocument>> search(std::span<const float> query, size_t k);

  DocumentStore& store() { return *store_; }
  CorpusNumber number() const { return number_; }
  std::string_view index_kind() const { return index_->kind(); }
  const Digest& tokenizer_fingerprint() const { return format_->tokenizer().fingerprint(); }

 private:
  Corpus(std::string index_path, std::shared_ptr<const PromptFormat> format, Embedder& embedder);

  absl::Status refresh();
  absl::Status load_index(const IndexOptions& options);
  absl::Status reconcile();
  // A document with what is made of it. vectors: [pieces.size(), dimension].
  struct Prepared {
    DocumentText document;
    std::vector<Piece> pieces;
    std::vector<float> vectors;
  };
  std::vector<Piece> cut(const DocumentText& document) const;
  absl::Status publish(std::span<const Prepared> documents);
  absl::Status save_locked();

  // Constant after open().
  const std::string index_path_;
  const std::shared_ptr<const PromptFormat> format_;
  Embedder& embedder_;
  std::unique_ptr<DocumentStore> store_;
  CorpusNumber number_ = 0;
  std::unique_ptr<GrowingIndex> index_;
  IndexIdentity identity_;

  // Held from the start of a transaction until the index agrees with the store again, and while
  // the index is saved: a saved index never holds a vector whose commit failed.
  std::mutex publish_mutex_;
  uint64_t unsaved_changes_ = 0;  // guarded by publish_mutex_
};

}  // namespace ragcache::retrieval
