#include "services/retrieval/documents/document_writer.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"
#include "common/status.h"
#include "services/retrieval/documents/blob.h"
#include "services/retrieval/documents/connections.h"

namespace ragcache::retrieval {

// The corpus as this transaction has made it.
absl::StatusOr<DocumentStore::CorpusState*> DocumentWriter::state_of(CorpusNumber corpus) {
  if (const auto found = changed_.find(corpus); found != changed_.end()) return &found->second;
  const std::lock_guard lock(store_->corpora_mutex_);
  const auto found = store_->corpora_.find(corpus);
  if (found == store_->corpora_.end()) return absl::NotFoundError("the corpus has been deleted");
  return &changed_.emplace(corpus, found->second).first->second;
}

absl::StatusOr<DocumentWriter::Stored> DocumentWriter::put(CorpusNumber corpus,
                                                           const DocumentText& document,
                                                           const ChunkOptions& cut,
                                                           std::span<const Piece> pieces,
                                                           std::span<const float> embeddings) {
  const size_t dimension = store_->dimension_;
  RAG_CHECK(!pieces.empty() && embeddings.size() == pieces.size() * dimension);
  Stored stored;
  RAG_ASSIGN_OR_RETURN(stored.replaced, erase(corpus, document.id));
  RAG_ASSIGN_OR_RETURN(DocumentStore::CorpusState * state, state_of(corpus));
  DocumentStore::Writer& writer = *store_->writer_;
  const Digest digest = content_digest(document.title, document.text);
  size_t tokens = 0;
  for (const Piece& piece : pieces) tokens += piece.segment_tokens.size();
  RAG_RETURN_IF_ERROR(writer.insert_document
                          .bind(corpus, document.id,
                                static_cast<int64_t>(placement_of(document.id)),
                                store_->embedding_source_, store_->tokenizer_source_,
                                int64_t{cut.max_tokens}, int64_t{cut.overlap_tokens},
                                static_cast<int64_t>(pieces.size()), static_cast<int64_t>(tokens),
                                std::span<const uint8_t>(digest), document.title, document.metadata)
                          .run());
  const int64_t number = writer.database->last_insert_id();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    RAG_RETURN_IF_ERROR(writer.insert_piece
                            .bind(corpus, static_cast<int64_t>(++state->sequence), number,
                                  static_cast<int64_t>(i + 1), int64_t{piece.overlap_bytes},
                                  std::span<const uint8_t>(piece.token_digest),
                                  as_blob(embeddings.subspan(i * dimension, dimension)),
                                  as_blob(std::span<const uint32_t>(piece.segment_tokens)),
                                  piece.text)
                            .run());
    stored.vectors.push_back(writer.database->last_insert_id());
  }
  ++state->record.documents;
  state->record.pieces += pieces.size();
  return stored;
}

absl::StatusOr<std::vector<VectorId>> DocumentWriter::erase(CorpusNumber corpus,
                                                            std::string_view id) {
  RAG_ASSIGN_OR_RETURN(DocumentStore::CorpusState * state, state_of(corpus));
  DocumentStore::Writer& writer = *store_->writer_;
  std::vector<VectorId> vectors;
  RAG_ASSIGN_OR_RETURN(const bool found, writer.find_document.bind(corpus, id).step());
  if (!found) return vectors;
  const int64_t number = writer.find_document.integer(0);
  const int64_t placement = writer.find_document.integer(1);
  writer.find_document.reset();
  SqliteStatement& erased = writer.erase_pieces.bind(number);
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool row, erased.step());
    if (!row) break;
    vectors.push_back(erased.integer(0));
  }
  std::ranges::sort(vectors);
  for (const VectorId vector : vectors) {
    RAG_RETURN_IF_ERROR(
        writer.insert_removal
            .bind(corpus, static_cast<int64_t>(++state->sequence), vector, placement)
            .run());
  }
  RAG_RETURN_IF_ERROR(writer.erase_document.bind(number).run());
  --state->record.documents;
  state->record.pieces -= vectors.size();
  state->removals += vectors.size();
  return vectors;
}

absl::Status DocumentWriter::write_log_position(DocumentStore::CorpusState& state) {
  DocumentStore::Writer& writer = *store_->writer_;
  const CorpusNumber corpus = state.record.number;
  RAG_RETURN_IF_ERROR(writer.set_sequence.bind(static_cast<int64_t>(state.sequence), corpus).run());
  if (state.removals <= kRemovalsMax) return absl::OkStatus();
  constexpr uint64_t kept = kRemovalsMax / 2;
  RAG_ASSIGN_OR_RETURN(
      const bool found,
      writer.last_removal_to_forget.bind(corpus, static_cast<int64_t>(kept)).step());
  RAG_CHECK(found);
  const int64_t last = writer.last_removal_to_forget.integer(0);
  writer.last_removal_to_forget.reset();
  RAG_RETURN_IF_ERROR(writer.forget_removals.bind(corpus, last).run());
  RAG_RETURN_IF_ERROR(writer.set_trimmed.bind(last, corpus).run());
  state.removals = kept;
  return absl::OkStatus();
}

absl::Status DocumentWriter::commit() {
  for (auto& [number, state] : changed_) RAG_RETURN_IF_ERROR(write_log_position(state));
  RAG_RETURN_IF_ERROR(transaction_.commit());
  const std::lock_guard lock(store_->corpora_mutex_);
  for (auto& [number, state] : changed_) {
    DocumentStore::CorpusState& committed = store_->corpora_[number];
    store_->document_count_ += state.record.documents - committed.record.documents;
    committed = std::move(state);
  }
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
