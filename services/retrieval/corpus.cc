#include "services/retrieval/corpus.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "services/retrieval/documents/document_writer.h"

namespace ragcache::retrieval {

ChunkOptions chunk_options(const CorpusSettings& settings, const ChunkOptions& defaults) {
  return {.max_tokens = settings.chunk_tokens.value_or(defaults.max_tokens),
          .overlap_tokens = settings.chunk_overlap_tokens.value_or(defaults.overlap_tokens)};
}

Corpus::Corpus(const Shared& shared, const CorpusRecord& record)
    : store_(*shared.store),
      builder_(*shared.builder),
      router_(*shared.router),
      search_pool_(*shared.search_pool),
      number_(record.number),
      name_(record.name),
      settings_(record.settings),
      cut_(chunk_options(record.settings, shared.chunk)) {}

absl::StatusOr<std::shared_ptr<Corpus>> Corpus::open(const Shared& shared,
                                                     const CorpusRecord& record) {
  std::shared_ptr<Corpus> corpus(new Corpus(shared, record));
  RAG_RETURN_IF_ERROR(corpus->load_metadata());
  RAG_RETURN_IF_ERROR(shared.router->open_corpus(record.number));
  return corpus;
}

absl::Status Corpus::load_metadata() {
  std::string last_json;
  Metadata metadata;
  absl::Status parsed;
  RAG_RETURN_IF_ERROR(store_.read_metadata(number_, [&](VectorId vector, std::string_view json) {
    if (json != last_json) {
      last_json = json;
      auto read = parse_metadata(json);
      if (!read.ok()) parsed = read.status();
      metadata = read.ok() ? *std::move(read) : Metadata();
    }
    metadata_->add(std::span(&vector, 1), metadata);
  }));
  return parsed;
}

CorpusRecord Corpus::record() const {
  return store_.find_corpus(number_).value_or(
      CorpusRecord{.number = number_, .name = name_, .settings = settings_});
}

absl::StatusOr<Corpus::Ingested> Corpus::upsert(std::span<const DocumentText> documents,
                                                std::stop_token stop) {
  absl::flat_hash_map<absl::string_view, size_t> last;
  for (size_t i = 0; i < documents.size(); ++i) last[documents[i].id] = i;
  RAG_ASSIGN_OR_RETURN(const std::vector<uint32_t> current,
                       store_.current_pieces(number_, cut_, documents));
  Ingested ingested{.documents = documents.size()};
  std::vector<DocumentBuilder::Order> orders;
  std::vector<Metadata> metadata;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (last[documents[i].id] != i) continue;
    ingested.pieces += current[i];
    if (current[i] > 0) continue;
    RAG_ASSIGN_OR_RETURN(metadata.emplace_back(), parse_metadata(documents[i].metadata));
    orders.push_back({.document = documents[i], .cut = cut_});
  }
  if (!orders.empty()) {
    RAG_ASSIGN_OR_RETURN(const DocumentBuilder::Built built,
                         builder_.build(std::move(orders), std::move(stop)));
    RAG_RETURN_IF_ERROR(publish(built.documents, metadata));
    ingested.tokens = built.tokens;
    for (const BuiltDocument& document : built.documents) ingested.pieces += document.pieces.size();
  }
  // Also what another call has stored may still be on its way to the shards.
  router_.committed(number_, store_.last_sequence(number_));
  return ingested;
}

absl::Status Corpus::publish(std::span<const BuiltDocument> documents,
                             std::span<const Metadata> metadata) {
  RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_.begin_write());
  std::vector<VectorId> replaced;
  std::vector<DocumentWriter::Stored> stored;
  for (const BuiltDocument& document : documents) {
    RAG_ASSIGN_OR_RETURN(stored.emplace_back(), writer.put(number_, document.document, document.cut,
                                                           document.pieces, document.vectors));
    const std::vector<VectorId>& old = stored.back().replaced;
    replaced.insert(replaced.end(), old.begin(), old.end());
  }
  for (size_t i = 0; i < stored.size(); ++i) metadata_->add(stored[i].vectors, metadata[i]);
  if (absl::Status status = writer.commit(); !status.ok()) {
    // The store gives the same vectors to what it stores next.
    for (size_t i = 0; i < stored.size(); ++i) metadata_->withdraw(stored[i].vectors, metadata[i]);
    return status;
  }
  metadata_->remove(replaced);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Corpus::erase(std::span<const std::string> ids) {
  uint64_t documents = 0;
  {
    RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_.begin_write());
    std::vector<VectorId> erased;
    for (const std::string& id : ids) {
      RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> vectors, writer.erase(number_, id));
      erased.insert(erased.end(), vectors.begin(), vectors.end());
      documents += !vectors.empty();
    }
    RAG_RETURN_IF_ERROR(writer.commit());
    metadata_->remove(erased);
  }
  router_.committed(number_, store_.last_sequence(number_));
  return documents;
}

void Corpus::search(std::vector<float> query, size_t k, const Filter& filter, Duration timeout,
                    std::stop_token stop, Router::SearchCallback done) const {
  SearchQuery search{.corpus = number_, .vector = std::move(query), .k = k, .timeout = timeout};
  if (!filter.conditions.empty()) {
    search.select = [filter, metadata = metadata_, number = number_, &store = store_,
                     &pool = search_pool_](Shard::Done<Selection> selected) {
      boost::asio::post(
          pool, [filter, metadata, number, &store, selected = std::move(selected)]() mutable {
            // It lacks no vector of the commits before it, and has lost none but by commits before
            // its end.
            Selection selection{.upto = store.last_sequence(number)};
            selection.allowed = metadata->select(filter);
            selection.from = store.last_sequence(number);
            selected(std::move(selection));
          });
    };
  }
  router_.search(std::move(search), std::move(stop), std::move(done));
}

}  // namespace ragcache::retrieval
