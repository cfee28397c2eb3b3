#include "services/retrieval/documents/document_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/documents/blob.h"
#include "services/retrieval/documents/connections.h"
#include "services/retrieval/documents/document_writer.h"
#include "services/retrieval/documents/layout.h"

namespace ragcache::retrieval {
namespace {

// Columns as connections.cc names them.
DocumentRecord read_piece(const SqliteStatement& row) {
  DocumentRecord record;
  record.id = row.text(0);
  if (row.integer(1) > 1) {
    record.source_id = std::move(record.id);
    record.id = piece_id(record.source_id, static_cast<uint32_t>(row.integer(2)));
  }
  record.title = row.text(3);
  record.text = row.text(4);
  record.metadata = row.text(5);
  record.segment_tokens = from_blob<uint32_t>(row.blob(6));
  record.token_digest = digest_from(row.blob(7));
  record.content_digest = content_digest(record.title, record.text);
  return record;
}

std::optional<int64_t> stored(const std::optional<uint32_t>& value) {
  return value.has_value() ? std::optional<int64_t>(*value) : std::nullopt;
}

std::optional<uint32_t> setting(const SqliteStatement& row, int column) {
  if (row.is_null(column)) return std::nullopt;
  return static_cast<uint32_t>(row.integer(column));
}

}  // namespace

DocumentStore::DocumentStore() = default;
DocumentStore::~DocumentStore() = default;

absl::StatusOr<std::unique_ptr<DocumentStore>> DocumentStore::open(const std::string& folder,
                                                                   const DocumentSources& sources,
                                                                   int readers) {
  RAG_CHECK(readers > 0);
  RAG_RETURN_IF_ERROR(make_writable_folder(folder));
  std::unique_ptr<DocumentStore> store(new DocumentStore());
  RAG_ASSIGN_OR_RETURN(store->lock_, FolderLock::acquire(folder));
  const std::string path = folder + "/documents.db";
  store->dimension_ = sources.dimension;
  store->writer_ = std::make_unique<Writer>();
  RAG_ASSIGN_OR_RETURN(store->writer_->database, SqliteDatabase::open(path));
  RAG_RETURN_IF_ERROR(prepare_layout(*store->writer_->database));
  RAG_RETURN_IF_ERROR(store->writer_->prepare());
  RAG_RETURN_IF_ERROR(store->load_store_id());
  RAG_ASSIGN_OR_RETURN(store->embedding_source_,
                       store->source_number("embedding", sources.embedding_model));
  RAG_ASSIGN_OR_RETURN(store->tokenizer_source_,
                       store->source_number("tokenizer", sources.tokenizer));
  RAG_RETURN_IF_ERROR(store->load_corpora());
  for (int i = 0; i < readers; ++i) {
    RAG_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, Reader::open(path));
    store->readers_.push_back(std::move(reader));
  }
  return store;
}

absl::Status DocumentStore::load_store_id() {
  SqliteDatabase& database = *writer_->database;
  RAG_ASSIGN_OR_RETURN(SqliteStatement select,
                       database.prepare("SELECT value FROM properties WHERE name='store_id'"));
  RAG_ASSIGN_OR_RETURN(const bool found, select.step());
  if (!found) {
    return absl::DataLossError(absl::StrCat("database ", database.path(), " has no store_id"));
  }
  store_id_ = digest_from(select.blob(0));
  return absl::OkStatus();
}

absl::Status DocumentStore::load_corpora() {
  RAG_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      writer_->database->prepare(
          "SELECT number, name, cache_scope, chunk_tokens, chunk_overlap_tokens, sequence, "
          "(SELECT COUNT(*) FROM documents WHERE corpus=c.number), "
          "(SELECT COUNT(*) FROM pieces WHERE corpus=c.number), "
          "(SELECT COUNT(*) FROM removals WHERE corpus=c.number) FROM corpora c"));
  const std::lock_guard lock(corpora_mutex_);
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return absl::OkStatus();
    CorpusState state;
    state.record = {.number = rows.integer(0),
                    .name = std::string(rows.text(1)),
                    .settings = {.cache_scope = static_cast<CacheScope>(rows.integer(2)),
                                 .chunk_tokens = setting(rows, 3),
                                 .chunk_overlap_tokens = setting(rows, 4)},
                    .documents = static_cast<uint64_t>(rows.integer(6)),
                    .pieces = static_cast<uint64_t>(rows.integer(7))};
    state.sequence = static_cast<uint64_t>(rows.integer(5));
    state.removals = static_cast<uint64_t>(rows.integer(8));
    document_count_ += state.record.documents;
    corpora_.emplace(state.record.number, std::move(state));
  }
}

absl::StatusOr<int64_t> DocumentStore::source_number(std::string_view kind,
                                                     const Digest& fingerprint) {
  SqliteDatabase& database = *writer_->database;
  const std::span<const uint8_t> value(fingerprint);
  RAG_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.prepare("INSERT OR IGNORE INTO sources (kind, fingerprint) VALUES (?, ?)"));
  RAG_RETURN_IF_ERROR(insert.bind(kind, value).run());
  RAG_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.prepare("SELECT number FROM sources WHERE kind=? AND fingerprint=?"));
  RAG_ASSIGN_OR_RETURN(const bool found, select.bind(kind, value).step());
  RAG_CHECK(found);
  return select.integer(0);
}

std::vector<CorpusRecord> DocumentStore::corpora() const {
  std::vector<CorpusRecord> records;
  {
    const std::lock_guard lock(corpora_mutex_);
    for (const auto& [number, state] : corpora_) records.push_back(state.record);
  }
  std::ranges::sort(records, {}, &CorpusRecord::name);
  return records;
}

std::optional<CorpusRecord> DocumentStore::find_corpus(std::string_view name) const {
  const std::lock_guard lock(corpora_mutex_);
  for (const auto& [number, state] : corpora_) {
    if (state.record.name == name) return state.record;
  }
  return std::nullopt;
}

std::optional<CorpusRecord> DocumentStore::find_corpus(CorpusNumber number) const {
  const std::lock_guard lock(corpora_mutex_);
  const auto found = corpora_.find(number);
  return found == corpora_.end() ? std::nullopt : std::optional(found->second.record);
}

absl::StatusOr<DocumentStore::CorpusState> DocumentStore::insert_corpus(
    std::string_view name, const CorpusSettings& settings) {
  SqliteDatabase& database = *writer_->database;
  RAG_ASSIGN_OR_RETURN(SqliteStatement insert,
                       database.prepare("INSERT INTO corpora (name, cache_scope, chunk_tokens, "
                                        "chunk_overlap_tokens) VALUES (?, ?, ?, ?)"));
  RAG_RETURN_IF_ERROR(insert
                          .bind(name, static_cast<int64_t>(settings.cache_scope),
                                stored(settings.chunk_tokens),
                                stored(settings.chunk_overlap_tokens))
                          .run());
  return CorpusState{.record = {.number = database.last_insert_id(),
                                .name = std::string(name),
                                .settings = settings}};
}

absl::StatusOr<CorpusRecord> DocumentStore::create_corpus(std::string_view name,
                                                          const CorpusSettings& settings) {
  const std::lock_guard write_lock(write_mutex_);
  if (find_corpus(name).has_value()) {
    return absl::AlreadyExistsError(str_cat("there is a corpus '", name, "'"));
  }
  RAG_ASSIGN_OR_RETURN(
      SqliteTransaction transaction,
      SqliteTransaction::begin(*writer_->database, SqliteTransaction::Mode::kWrite));
  RAG_ASSIGN_OR_RETURN(CorpusState made, insert_corpus(name, settings));
  RAG_RETURN_IF_ERROR(transaction.commit());
  const std::lock_guard lock(corpora_mutex_);
  return corpora_.emplace(made.record.number, made).first->second.record;
}

absl::Status DocumentStore::delete_corpus(CorpusNumber number) {
  const std::lock_guard write_lock(write_mutex_);
  const std::optional<CorpusRecord> corpus = find_corpus(number);
  if (!corpus.has_value()) return absl::NotFoundError("the corpus has been deleted");
  SqliteDatabase& database = *writer_->database;
  RAG_ASSIGN_OR_RETURN(SqliteTransaction transaction,
                       SqliteTransaction::begin(database, SqliteTransaction::Mode::kWrite));
  for (const char* sql :
       {"DELETE FROM pieces WHERE corpus=?", "DELETE FROM documents WHERE corpus=?",
        "DELETE FROM removals WHERE corpus=?", "DELETE FROM corpora WHERE number=?"}) {
    RAG_ASSIGN_OR_RETURN(SqliteStatement erase, database.prepare(sql));
    RAG_RETURN_IF_ERROR(erase.bind(number).run());
  }
  std::optional<CorpusState> successor;
  if (corpus->name == kDefaultCorpus) {
    RAG_ASSIGN_OR_RETURN(successor, insert_corpus(corpus->name, corpus->settings));
  }
  RAG_RETURN_IF_ERROR(transaction.commit());
  const std::lock_guard lock(corpora_mutex_);
  corpora_.erase(number);
  if (successor.has_value()) corpora_.emplace(successor->record.number, *successor);
  document_count_ -= corpus->documents;
  return absl::OkStatus();
}

DocumentStore::ReaderLease DocumentStore::lease_reader() {
  std::unique_lock lock(readers_mutex_);
  reader_returned_.wait(lock, [this] { return !readers_.empty(); });
  std::unique_ptr<Reader> reader = std::move(readers_.back());
  readers_.pop_back();
  return ReaderLease(this, std::move(reader));
}

absl::StatusOr<std::vector<uint32_t>> DocumentStore::current_pieces(
    CorpusNumber corpus, const ChunkOptions& cut, std::span<const DocumentText> documents) {
  const int64_t max_tokens =
      cut.max_tokens == 0 ? std::numeric_limits<int64_t>::max() : int64_t{cut.max_tokens};
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  std::vector<uint32_t> current;
  current.reserve(documents.size());
  for (const DocumentText& document : documents) {
    const Digest digest = content_digest(document.title, document.text);
    RAG_ASSIGN_OR_RETURN(const bool found,
                         reader->is_current
                             .bind(corpus, document.id, std::span<const uint8_t>(digest),
                                   document.metadata, embedding_source_, tokenizer_source_,
                                   max_tokens, int64_t{cut.max_tokens}, int64_t{cut.overlap_tokens})
                             .step());
    current.push_back(found ? static_cast<uint32_t>(reader->is_current.integer(0)) : 0);
    reader->is_current.reset();
  }
  return current;
}

absl::StatusOr<std::vector<std::optional<DocumentRecord>>> DocumentStore::find_by_vector(
    std::span<const VectorId> vectors) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  std::vector<std::optional<DocumentRecord>> records(vectors.size());
  for (size_t i = 0; i < vectors.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(const bool found, reader->piece_by_vector.bind(vectors[i]).step());
    if (found) records[i] = read_piece(reader->piece_by_vector);
    reader->piece_by_vector.reset();
  }
  return records;
}

absl::StatusOr<std::vector<std::vector<DocumentRecord>>> DocumentStore::find_by_id(
    CorpusNumber corpus, std::span<const std::string> ids) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  std::vector<std::vector<DocumentRecord>> records(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    SqliteStatement& pieces = reader->pieces_by_id.bind(corpus, ids[i]);
    while (true) {
      RAG_ASSIGN_OR_RETURN(const bool found, pieces.step());
      if (!found) break;
      records[i].push_back(read_piece(pieces));
    }
    const std::optional<PieceName> piece = parse_piece_id(ids[i]);
    if (!records[i].empty() || !piece.has_value()) continue;
    SqliteStatement& one =
        reader->piece_by_number.bind(corpus, piece->document_id, int64_t{piece->number});
    RAG_ASSIGN_OR_RETURN(const bool found, one.step());
    if (found) records[i].push_back(read_piece(one));
    one.reset();
  }
  return records;
}

absl::StatusOr<std::vector<DocumentSummary>> DocumentStore::list(CorpusNumber corpus,
                                                                 std::string_view after_id,
                                                                 uint32_t limit) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->list.bind(corpus, after_id, int64_t{limit});
  std::vector<DocumentSummary> summaries;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return summaries;
    summaries.push_back({.id = std::string(rows.text(0)),
                         .title = std::string(rows.text(1)),
                         .metadata = std::string(rows.text(2)),
                         .content_digest = digest_from(rows.blob(3))});
  }
}

absl::Status DocumentStore::read_metadata(
    CorpusNumber corpus, const std::function<void(VectorId, std::string_view)>& visit) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->metadata.bind(corpus);
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return absl::OkStatus();
    visit(rows.integer(0), rows.text(1));
  }
}

absl::StatusOr<uint64_t> DocumentStore::stale_count() {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& row = reader->stale_count.bind(embedding_source_, tokenizer_source_);
  RAG_ASSIGN_OR_RETURN(const bool found, row.step());
  RAG_CHECK(found);
  const uint64_t count = static_cast<uint64_t>(row.integer(0));
  row.reset();
  return count;
}

absl::StatusOr<std::vector<DocumentStore::StaleDocument>> DocumentStore::stale(uint32_t limit) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->stale.bind(embedding_source_, tokenizer_source_, int64_t{limit});
  std::vector<StaleDocument> documents;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return documents;
    StaleDocument& stale = documents.emplace_back();
    stale.corpus = rows.integer(1);
    stale.document = {.id = std::string(rows.text(2)),
                      .title = std::string(rows.text(3)),
                      .metadata = std::string(rows.text(4))};
    const bool embedding_is_good = rows.integer(5) == embedding_source_;
    SqliteStatement& pieces = reader->stale_pieces.bind(rows.integer(0));
    while (true) {
      RAG_ASSIGN_OR_RETURN(const bool has_piece, pieces.step());
      if (!has_piece) break;
      StaleDocument::Piece& piece = stale.pieces.emplace_back();
      piece.text = pieces.text(0);
      stale.document.text.append(piece.text, static_cast<size_t>(pieces.integer(1)));
      if (embedding_is_good) piece.embedding = from_blob<float>(pieces.blob(2));
    }
  }
}

absl::StatusOr<DocumentWriter> DocumentStore::begin_write() {
  std::unique_lock lock(write_mutex_);
  RAG_ASSIGN_OR_RETURN(
      SqliteTransaction transaction,
      SqliteTransaction::begin(*writer_->database, SqliteTransaction::Mode::kWrite));
  return DocumentWriter(this, std::move(lock), std::move(transaction));
}

}  // namespace ragcache::retrieval
