#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "services/retrieval/documents/blob.h"
#include "services/retrieval/documents/connections.h"
#include "services/retrieval/documents/document_store.h"

// The vectors of a corpus, as indexes follow them.
namespace ragcache::retrieval {
namespace {

absl::StatusOr<std::vector<float>> read_embedding(const SqliteDatabase& database, VectorId vector,
                                                  std::span<const uint8_t> blob,
                                                  uint32_t dimension) {
  std::vector<float> embedding = from_blob<float>(blob);
  if (embedding.size() != dimension) {
    return absl::DataLossError(absl::StrCat("database ", database.path(), ": vector ", vector,
                                            " has ", embedding.size(), " components, not ",
                                            dimension));
  }
  return embedding;
}

}  // namespace

uint64_t DocumentStore::last_sequence(CorpusNumber corpus) const {
  const std::lock_guard lock(corpora_mutex_);
  const auto found = corpora_.find(corpus);
  return found == corpora_.end() ? 0 : found->second.sequence;
}

absl::StatusOr<ChangePage> DocumentStore::changes_after(CorpusNumber corpus,
                                                        const LogPosition& position, uint32_t limit,
                                                        const LogPart& part) {
  RAG_CHECK(limit > 0);
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  ChangePage page;
  RAG_ASSIGN_OR_RETURN(const bool exists, reader->log_bounds.bind(corpus).step());
  if (!exists) return page;
  const auto trimmed = static_cast<uint64_t>(reader->log_bounds.integer(0));
  page.end = static_cast<uint64_t>(reader->log_bounds.integer(1));
  reader->log_bounds.reset();
  // A reader has no vectors that were removed before it began.
  const bool reaches_back = std::max(position.sequence, position.origin) >= trimmed;
  if (position.sequence > 0 && (!reaches_back || position.sequence > page.end)) {
    return absl::OutOfRangeError(absl::StrCat("the log of changes goes from ", trimmed, " to ",
                                              page.end, ", not to ", position.sequence));
  }
  const auto is_ours = [&part](const VectorChange& change) {
    return shard_of(change.placement, part.shards) == part.shard;
  };
  const auto after = static_cast<int64_t>(position.sequence);
  std::vector<VectorChange>& changes = page.changes;
  SqliteStatement& additions =
      reader->additions.bind(corpus, after, embedding_source_, int64_t{limit});
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, additions.step());
    if (!found) break;
    VectorChange& change = changes.emplace_back();
    change.sequence = static_cast<uint64_t>(additions.integer(0));
    change.vector = additions.integer(1);
    change.placement = static_cast<Placement>(additions.integer(2));
    if (!is_ours(change)) continue;
    RAG_ASSIGN_OR_RETURN(change.embedding, read_embedding(*reader->database, change.vector,
                                                          additions.blob(3), dimension_));
  }
  SqliteStatement& removals = reader->removals.bind(corpus, after, int64_t{limit});
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, removals.step());
    if (!found) break;
    changes.push_back({.sequence = static_cast<uint64_t>(removals.integer(0)),
                       .vector = removals.integer(1),
                       .placement = static_cast<Placement>(removals.integer(2)),
                       .removed = true});
  }
  // The first `limit` of both are the first `limit` of each, merged.
  std::ranges::sort(changes, {}, &VectorChange::sequence);
  if (changes.size() > limit) changes.resize(limit);
  page.upto = changes.size() == limit ? changes.back().sequence : page.end;
  std::erase_if(changes, [&](const VectorChange& change) { return !is_ours(change); });
  return page;
}

absl::StatusOr<std::vector<VectorId>> DocumentStore::current_vectors(CorpusNumber corpus) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->vectors.bind(corpus, embedding_source_);
  std::vector<VectorId> vectors;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return vectors;
    vectors.push_back(rows.integer(0));
  }
}

absl::Status DocumentStore::read_embeddings(
    std::span<const VectorId> vectors,
    const std::function<void(VectorId, std::span<const float>)>& visit) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  for (const VectorId vector : vectors) {
    RAG_ASSIGN_OR_RETURN(const bool found, reader->embedding.bind(vector).step());
    if (found) {
      RAG_ASSIGN_OR_RETURN(
          const std::vector<float> embedding,
          read_embedding(*reader->database, vector, reader->embedding.blob(0), dimension_));
      visit(vector, embedding);
    }
    reader->embedding.reset();
  }
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
