#pragma once

#include <cstdint>
#include <memory>
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
#include "services/retrieval/router/router.h"

namespace ragcache::retrieval {

// One corpus: its part of the document store, which is the truth, and what follows that: the index
// of its vectors, on the shards behind the router, and that of their metadata.
//
// Any thread. upsert() and erase() block on the disk and the shards, upsert() on the embedder too.
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
    std::unique_ptr<Router> router;
    boost::asio::thread_pool* search_pool = nullptr;
    ChunkOptions chunk;  // where a corpus names none
  };

  // The shards are to follow it from here on.
  static absl::StatusOr<std::shared_ptr<Corpus>> open(const Shared& shared,
                                                      const CorpusRecord& record);

  CorpusNumber number() const { return number_; }
  const std::string& name() const { return name_; }
  const CorpusSettings& settings() const { return settings_; }
  const ChunkOptions& cut() const { return cut_; }
  std::string index_kind() const { return router_.index_kind(number_); }
  // Settings, and counts of now. Counts are 0 once the corpus has been deleted.
  CorpusRecord record() const;

  // Stores a batch in one transaction; of an id that occurs twice the later wins, and a document
  // that is there already costs a lookup. When this returns OK the batch is durable and found.
  absl::StatusOr<Ingested> upsert(std::span<const DocumentText> documents, std::stop_token stop);
  // How many of `ids` there were. Ids of pieces are not: a document goes as a whole.
  absl::StatusOr<uint64_t> erase(std::span<const std::string> ids);
  // After an ingest: has the index trained if its size calls for it. Returns at once.
  void settle() { router_.settle(number_); }
  // The corpus has been deleted from the store: the shards forget it.
  void discard() { router_.close_corpus(number_); }

  // Calls `done` with the k best by cosine of those that meet the filter, ties by id; fewer only if
  // there are fewer, or fewer in the lists that an index of an ivf kind probes. UNAVAILABLE: a
  // shard has no replica that is up to date. query: [dimension]. REQUIRES: k > 0, check_filter() is
  // OK.
  void search(std::vector<float> query, size_t k, const Filter& filter, Duration timeout,
              std::stop_token stop, Router::SearchCallback done) const;

 private:
  Corpus(const Shared& shared, const CorpusRecord& record);

  absl::Status load_metadata();
  absl::Status publish(std::span<const BuiltDocument> documents,
                       std::span<const Metadata> metadata);

  // Constant after open().
  DocumentStore& store_;
  const DocumentBuilder& builder_;
  Router& router_;
  boost::asio::thread_pool& search_pool_;
  const CorpusNumber number_;
  const std::string name_;
  const CorpusSettings settings_;
  const ChunkOptions cut_;

  // Has a vector before the store's commit and loses it after.
  const std::shared_ptr<MetadataIndex> metadata_ = std::make_shared<MetadataIndex>();
};

// How a corpus of these settings cuts its documents.
ChunkOptions chunk_options(const CorpusSettings& settings, const ChunkOptions& defaults);

}  // namespace ragcache::retrieval
