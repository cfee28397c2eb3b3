#include "services/retrieval/corpus.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"

namespace ragcache::retrieval {
namespace {

constexpr uint32_t kRefreshBatch = 32;
constexpr size_t kReconcileBatch = 1024;
// Changes after which an ingest under way saves the index: what a crash makes the next start redo.
constexpr uint64_t kUnsavedChangesMax = 20'000;
// At an ingest's end the index is saved when at least one in so many of its vectors changed.
constexpr uint64_t kSaveShare = 100;
// A document replaced between the index and the store is looked for again.
constexpr int kSearchRoundsMax = 4;
constexpr double kProgressSeconds = 5;

// How documents are kept: whole.
constexpr ChunkOptions kCut;

// What the encoder reads of a piece.
std::string embedded_text(const DocumentText& document, const Piece& piece) {
  return document.title.empty() ? piece.text : document.title + "\n" + piece.text;
}

// The embedding of a stale document's i-th piece, if it is of the same text as `piece`.
const std::vector<float>* good_embedding(const DocumentStore::StaleDocument& stale, size_t i,
                                         const Piece& piece) {
  if (i >= stale.pieces.size() || stale.pieces[i].text != piece.text) return nullptr;
  return stale.pieces[i].embedding.has_value() ? &*stale.pieces[i].embedding : nullptr;
}

}  // namespace

Corpus::Corpus(std::string index_path, std::shared_ptr<const PromptFormat> format,
               Embedder& embedder)
    : index_path_(std::move(index_path)), format_(std::move(format)), embedder_(embedder) {}

absl::StatusOr<std::unique_ptr<Corpus>> Corpus::open(const std::string& folder,
                                                     const IndexOptions& index, int readers,
                                                     std::shared_ptr<const PromptFormat> format,
                                                     Embedder& embedder) {
  RAG_CHECK(index.dimension == embedder.dimension());
  std::unique_ptr<Corpus> corpus(
      new Corpus(folder + "/vectors.index", std::move(format), embedder));
  const DocumentSources sources = {.embedding_model = embedder.fingerprint(),
                                   .tokenizer = corpus->tokenizer_fingerprint(),
                                   .dimension = embedder.dimension()};
  RAG_ASSIGN_OR_RETURN(corpus->store_, DocumentStore::open(folder, sources, readers));
  corpus->number_ = corpus->store_->find_corpus(kDefaultCorpus)->number;
  corpus->identity_ = {.store_id = corpus->store_->store_id(),
                       .embedding_model = embedder.fingerprint()};
  RAG_RETURN_IF_ERROR(corpus->load_index(index));
  RAG_RETURN_IF_ERROR(corpus->refresh());
  RAG_RETURN_IF_ERROR(corpus->reconcile());
  RAG_RETURN_IF_ERROR(corpus->settle());
  return corpus;
}

absl::Status Corpus::load_index(const IndexOptions& options) {
  const VectorReader embeddings = [this](std::span<const int64_t> ids, const auto& visit) {
    return store_->read_embeddings(ids, visit);
  };
  auto loaded = GrowingIndex::load(index_path_, options, identity_, embeddings);
  if (loaded.ok()) {
    index_ = *std::move(loaded);
    return absl::OkStatus();
  }
  switch (loaded.status().code()) {
    case absl::StatusCode::kNotFound:
      break;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      log::warn("index file not used: the index is rebuilt from the stored embeddings",
                {{"reason", std::string(loaded.status().message())}});
      break;
    default:
      return loaded.status();
  }
  index_ = GrowingIndex::create(options, embeddings);
  return absl::OkStatus();
}

absl::Status Corpus::refresh() {
  RAG_ASSIGN_OR_RETURN(const uint64_t total, store_->stale_count());
  if (total == 0) return absl::OkStatus();
  log::info("documents were made with another tokenizer or embedding model: making them anew",
            {{"documents", total}});
  TimePoint last_report = steady_now();
  uint64_t done = 0;
  while (true) {
    RAG_ASSIGN_OR_RETURN(std::vector<DocumentStore::StaleDocument> batch,
                         store_->stale(kRefreshBatch));
    if (batch.empty()) break;
    std::vector<Prepared> documents;
    std::vector<std::string> texts;
    for (const auto& stale : batch) {
      Prepared& prepared = documents.emplace_back();
      prepared.document = stale.document;
      prepared.pieces = cut(stale.document);
      for (size_t i = 0; i < prepared.pieces.size(); ++i) {
        if (good_embedding(stale, i, prepared.pieces[i]) == nullptr) {
          texts.push_back(embedded_text(stale.document, prepared.pieces[i]));
        }
      }
    }
    Embeddings made;
    if (!texts.empty()) {
      RAG_ASSIGN_OR_RETURN(made, embedder_.embed(texts, Embedder::Lane::kIngest, {}));
    }
    auto next = made.vectors.begin();
    for (size_t d = 0; d < batch.size(); ++d) {
      Prepared& prepared = documents[d];
      for (size_t i = 0; i < prepared.pieces.size(); ++i) {
        if (const auto* good = good_embedding(batch[d], i, prepared.pieces[i])) {
          prepared.vectors.insert(prepared.vectors.end(), good->begin(), good->end());
        } else {
          std::copy_n(next, embedder_.dimension(), std::back_inserter(prepared.vectors));
          next += embedder_.dimension();
        }
      }
    }
    RAG_RETURN_IF_ERROR(publish(documents));
    done += batch.size();
    if (to_seconds(steady_now() - last_report) > kProgressSeconds) {
      last_report = steady_now();
      log::info("making documents anew", {{"done", done}, {"documents", total}});
    }
  }
  log::info("documents made anew", {{"documents", done}});
  return absl::OkStatus();
}

absl::Status Corpus::reconcile() {
  RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> stored, store_->current_vectors(number_));
  const std::vector<VectorId> indexed = index_->ids();
  std::vector<VectorId> missing, surplus;
  std::ranges::set_difference(stored, indexed, std::back_inserter(missing));
  std::ranges::set_difference(indexed, stored, std::back_inserter(surplus));
  if (missing.empty() && surplus.empty()) return absl::OkStatus();
  const std::lock_guard lock(publish_mutex_);
  RAG_RETURN_IF_ERROR(index_->remove(surplus).status());
  for (size_t begin = 0; begin < missing.size(); begin += kReconcileBatch) {
    const size_t size = std::min(kReconcileBatch, missing.size() - begin);
    std::vector<VectorId> ids;
    std::vector<float> vectors;
    RAG_RETURN_IF_ERROR(store_->read_embeddings(
        std::span(missing).subspan(begin, size), [&](VectorId id, std::span<const float> vector) {
          ids.push_back(id);
          vectors.insert(vectors.end(), vector.begin(), vector.end());
        }));
    RAG_RETURN_IF_ERROR(index_->add(ids, vectors));
  }
  unsaved_changes_ += missing.size() + surplus.size();
  log::info("index brought up to the document store",
            {{"added", missing.size()}, {"removed", surplus.size()}, {"vectors", index_->size()}});
  return absl::OkStatus();
}

std::vector<Piece> Corpus::cut(const DocumentText& document) const {
  Piece piece{.text = document.text};
  piece.segment_tokens = format_->document(document.title, document.text);
  piece.token_digest = digest_of_tokens(piece.segment_tokens);
  return {std::move(piece)};
}

absl::StatusOr<Corpus::Ingested> Corpus::upsert(std::span<const DocumentText> documents,
                                                std::stop_token stop) {
  absl::flat_hash_map<absl::string_view, size_t> last;
  for (size_t i = 0; i < documents.size(); ++i) last[documents[i].id] = i;
  RAG_ASSIGN_OR_RETURN(const std::vector<bool> current,
                       store_->are_current(number_, kCut, documents));
  std::vector<Prepared> prepared;
  std::vector<std::string> texts;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (last[documents[i].id] != i || current[i]) continue;
    prepared.push_back({.document = documents[i], .pieces = cut(documents[i])});
    for (const Piece& piece : prepared.back().pieces) {
      texts.push_back(embedded_text(documents[i], piece));
    }
  }
  Ingested ingested{.documents = documents.size()};
  if (prepared.empty()) return ingested;
  RAG_ASSIGN_OR_RETURN(const Embeddings made,
                       embedder_.embed(texts, Embedder::Lane::kIngest, std::move(stop)));
  ingested.tokens = made.tokens;
  auto next = made.vectors.begin();
  for (Prepared& document : prepared) {
    const auto end = next + static_cast<ptrdiff_t>(document.pieces.size() * embedder_.dimension());
    document.vectors.assign(next, end);
    next = end;
  }
  RAG_RETURN_IF_ERROR(publish(prepared));
  return ingested;
}

absl::Status Corpus::publish(std::span<const Prepared> documents) {
  const std::lock_guard lock(publish_mutex_);
  RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_->begin_write());
  std::vector<VectorId> added, replaced;
  std::vector<float> vectors;
  for (const Prepared& document : documents) {
    RAG_ASSIGN_OR_RETURN(
        const DocumentWriter::Stored stored,
        writer.put(number_, document.document, kCut, document.pieces, document.vectors));
    added.insert(added.end(), stored.vectors.begin(), stored.vectors.end());
    replaced.insert(replaced.end(), stored.replaced.begin(), stored.replaced.end());
    vectors.insert(vectors.end(), document.vectors.begin(), document.vectors.end());
  }
  RAG_RETURN_IF_ERROR(index_->add(added, vectors));
  if (absl::Status status = writer.commit(); !status.ok()) {
    RAG_RETURN_IF_ERROR(index_->remove(added).status());
    return status;
  }
  RAG_RETURN_IF_ERROR(index_->remove(replaced).status());
  unsaved_changes_ += added.size() + replaced.size();
  return unsaved_changes_ >= kUnsavedChangesMax ? save_locked() : absl::OkStatus();
}

absl::StatusOr<uint64_t> Corpus::erase(std::span<const std::string> ids) {
  const std::lock_guard lock(publish_mutex_);
  RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_->begin_write());
  std::vector<VectorId> erased;
  uint64_t documents = 0;
  for (const std::string& id : ids) {
    RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> vectors, writer.erase(number_, id));
    erased.insert(erased.end(), vectors.begin(), vectors.end());
    documents += !vectors.empty();
  }
  RAG_RETURN_IF_ERROR(writer.commit());
  RAG_RETURN_IF_ERROR(index_->remove(erased).status());
  unsaved_changes_ += erased.size();
  return documents;
}

absl::Status Corpus::settle() {
  bool trained = false;
  if (const auto improved = index_->improve(); improved.ok()) {
    trained = *improved;
  } else if (!absl::IsAborted(improved.status())) {
    return improved.status();  // after ABORTED the next ingest tries again
  }
  const std::lock_guard lock(publish_mutex_);
  if (trained) unsaved_changes_ += index_->size();
  if (unsaved_changes_ * kSaveShare < index_->size()) return absl::OkStatus();
  return save_locked();
}

absl::Status Corpus::save() {
  const std::lock_guard lock(publish_mutex_);
  return save_locked();
}

absl::Status Corpus::save_locked() {
  if (unsaved_changes_ == 0) return absl::OkStatus();
  const TimePoint started = steady_now();
  RAG_RETURN_IF_ERROR(index_->save(index_path_, identity_));
  unsaved_changes_ = 0;
  log::info("index saved",
            {{"vectors", index_->size()}, {"seconds", to_seconds(steady_now() - started)}});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FoundDocument>> Corpus::search(std::span<const float> query, size_t k) {
  std::vector<FoundDocument> found;
  size_t fetch = k;
  for (int round = 0; round < kSearchRoundsMax; ++round) {
    RAG_ASSIGN_OR_RETURN(const std::vector<VectorHit> hits, index_->search(query, fetch));
    std::vector<VectorId> ids;
    for (const VectorHit& hit : hits) ids.push_back(hit.id);
    RAG_ASSIGN_OR_RETURN(std::vector<std::optional<DocumentRecord>> records,
                         store_->find_by_vector(ids));
    found.clear();
    for (size_t i = 0; i < hits.size(); ++i) {
      if (records[i].has_value()) found.push_back({*std::move(records[i]), hits[i].score});
    }
    // Both vectors of a document under replacement are in the index and one of them in the store.
    const size_t unseen = hits.size() - found.size();
    if (unseen == 0) break;
    if (found.size() >= k && round > 0) break;
    fetch = k + unseen;
  }
  std::ranges::sort(found, [](const FoundDocument& a, const FoundDocument& b) {
    return a.score != b.score ? a.score > b.score : a.document.id < b.document.id;
  });
  if (found.size() > k) found.resize(k);
  return found;
}

}  // namespace ragcache::retrieval
