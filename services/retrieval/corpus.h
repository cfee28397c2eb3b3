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
#include "services/retrieval/document_builder.h"
#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/filter/filter.h"
#include "services/retrieval/filter/metadata_index.h"
#include "services/retrieval/index/growing_index.h"

namespace ragcache::retrieval {

struct FoundDocument {
  DocumentRecord document;
  float score = 0;
};

// One corpus: its part of the document store, which is the truth, and what is made from that: the
// index of its vectors and that of their metadata. The indexes hold a piece's vector before the
// store's commit and lose the old one after it, so every committed document can be found at any
// time; what a search finds in the index and not in the store is skipped. The index file may lag
// behind: open() brings it up to the store.
//
// Any thread. upsert() and erase() block on the disk, upsert() on the embedder too.
class Corpus {
 public:
  struct Ingested {
    uint64_t documents = 0;
    uint64_t pieces = 0;  // that they are stored as
    uint64_t tokens = 0;  // embedded; none for documents that were there already
  };

  // What all corpora share. Outlives them.
  struct Shared {
    std::unique_ptr<DocumentStore> store;
    std::unique_ptr<DocumentBuilder> builder;
    std::string folder;
    IndexOptions index;
    ChunkOptions chunk;  // where a corpus names none
    Digest embedding_model = {};
  };

  // Loads the index, or rebuilds it from the store if its file cannot be used.
  static absl::StatusOr<std::shared_ptr<Corpus>> open(const Shared& shared,
                                                      const CorpusRecord& record);

  CorpusNumber number() const { return number_; }
  const std::string& name() const { return name_; }
  const CorpusSettings& settings() const { return settings_; }
  const ChunkOptions& cut() const { return cut_; }
  std::string_view index_kind() const { return index_->kind(); }
  // Settings, and counts of now. Counts are 0 once the corpus has been deleted.
  CorpusRecord record() const;

  // Stores a batch in one transaction; of an id that occurs twice the later wins, and a document
  // that is there already costs a lookup. When this returns OK the batch is durable and found.
  absl::StatusOr<Ingested> upsert(std::span<const DocumentText> documents, std::stop_token stop);
  // How many of `ids` there were. Ids of pieces are not: a document goes as a whole.
  absl::StatusOr<uint64_t> erase(std::span<const std::string> ids);
  // After an ingest: trains the index if its size calls for it, and saves it if enough changed.
  absl::Status settle();
  // Saves the index if anything changed.
  absl::Status save();
  // The corpus has been deleted from the store: its index file goes, and comes back no more.
  void discard();

  // The k best by cosine of those that meet the filter, ties by id; fewer only if there are fewer,
  // or fewer in the lists that an index of an ivf kind probes. query: [dimension].
  // REQUIRES: k > 0, check_filter() is OK.
  absl::StatusOr<std::vector<FoundDocument>> search(std::span<const float> query, size_t k,
                                                    const Filter& filter);

 private:
  Corpus(const Shared& shared, const CorpusRecord& record);

  absl::Status load_index();
  absl::Status load_metadata();
  absl::Status reconcile();
  absl::Status publish(std::span<const BuiltDocument> documents,
                       std::span<const Metadata> metadata);
  absl::Status save_locked();

  // Constant after open().
  DocumentStore& store_;
  const DocumentBuilder& builder_;
  const IndexOptions index_options_;
  const CorpusNumber number_;
  const std::string name_;
  const CorpusSettings settings_;
  const ChunkOptions cut_;
  const std::string index_path_;
  const IndexIdentity identity_;
  std::unique_ptr<GrowingIndex> index_;

  MetadataIndex metadata_;

  // Held from the start of a transaction until the indexes agree with the store again, and while
  // the index is saved: a saved index never holds a vector whose commit failed.
  std::mutex publish_mutex_;
  uint64_t unsaved_changes_ = 0;  // guarded by publish_mutex_
  bool discarded_ = false;        // guarded by publish_mutex_
};

// How a corpus of these settings cuts its documents.
ChunkOptions chunk_options(const CorpusSettings& settings, const ChunkOptions& defaults);

}  // namespace ragcache::retrieval
