#include "services/retrieval/documents/document_store.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace ragcache::retrieval {
namespace {

static_assert(std::endian::native == std::endian::little,
              "embeddings and tokens are stored little-endian, as they lie in memory");

constexpr int64_t kLayoutVersion = 1;

// vector_id is the rowid: AUTOINCREMENT keeps a number from being used twice, also across deletes
// and restarts. Blobs come last, so that reads of the small columns skip their overflow pages.
constexpr char kLayout[] = R"sql(
  CREATE TABLE properties (name TEXT PRIMARY KEY, value BLOB NOT NULL);
  CREATE TABLE sources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    UNIQUE (kind, fingerprint));
  CREATE TABLE documents (
    vector_id INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    embedding_source INTEGER NOT NULL REFERENCES sources(number),
    tokenizer_source INTEGER NOT NULL REFERENCES sources(number),
    content_digest BLOB NOT NULL,
    token_digest BLOB NOT NULL,
    title TEXT NOT NULL,
    embedding BLOB NOT NULL,
    tokens BLOB NOT NULL,
    text TEXT NOT NULL);
  CREATE INDEX documents_by_source ON documents (embedding_source, tokenizer_source);
)sql";

template <typename T>
std::span<const uint8_t> as_bytes(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

// A blob has no alignment of its own, hence the copy.
template <typename T>
std::vector<T> from_bytes(std::span<const uint8_t> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

Digest digest_from(std::span<const uint8_t> bytes) {
  Digest digest = {};
  std::memcpy(digest.data(), bytes.data(), std::min(bytes.size(), digest.size()));
  return digest;
}

// Columns: id, title, text, content_digest, tokens, token_digest.
DocumentRecord read_record(const SqliteStatement& row) {
  DocumentRecord record;
  record.id = row.text(0);
  record.title = row.text(1);
  record.text = row.text(2);
  record.content_digest = digest_from(row.blob(3));
  record.segment_tokens = from_bytes<uint32_t>(row.blob(4));
  record.token_digest = digest_from(row.blob(5));
  return record;
}

}  // namespace

Digest content_digest(std::string_view title, std::string_view text) {
  const uint64_t title_size = title.size();
  uint8_t length[sizeof(title_size)];
  std::memcpy(length, &title_size, sizeof(length));
  return Sha256().update(std::span<const uint8_t>(length)).update(title).update(text).finish();
}

struct DocumentStore::Writer {
  std::unique_ptr<SqliteDatabase> database;
  SqliteStatement insert;
  SqliteStatement erase;
};

struct DocumentStore::Reader {
  std::unique_ptr<SqliteDatabase> database;
  SqliteStatement is_current;
  SqliteStatement by_vector;
  SqliteStatement by_id;
  SqliteStatement list;
  SqliteStatement vectors;
  SqliteStatement embedding;
  SqliteStatement stale_count;
  SqliteStatement stale;

  static absl::StatusOr<std::unique_ptr<Reader>> open(const std::string& path) {
    auto reader = std::make_unique<Reader>();
    RAG_ASSIGN_OR_RETURN(reader->database, SqliteDatabase::open(path));
    const SqliteDatabase& database = *reader->database;
    RAG_ASSIGN_OR_RETURN(reader->is_current,
                         database.prepare("SELECT 1 FROM documents WHERE id=? AND content_digest=? "
                                          "AND embedding_source=? AND tokenizer_source=?"));
    RAG_ASSIGN_OR_RETURN(reader->by_vector,
                         database.prepare("SELECT id, title, text, content_digest, tokens, "
                                          "token_digest FROM documents WHERE vector_id=?"));
    RAG_ASSIGN_OR_RETURN(reader->by_id,
                         database.prepare("SELECT id, title, text, content_digest, tokens, "
                                          "token_digest FROM documents WHERE id=?"));
    RAG_ASSIGN_OR_RETURN(reader->list,
                         database.prepare("SELECT id, title, content_digest, token_digest "
                                          "FROM documents WHERE id>? ORDER BY id LIMIT ?"));
    RAG_ASSIGN_OR_RETURN(reader->vectors,
                         database.prepare("SELECT vector_id FROM documents WHERE "
                                          "embedding_source=? ORDER BY vector_id"));
    RAG_ASSIGN_OR_RETURN(reader->embedding,
                         database.prepare("SELECT embedding FROM documents WHERE vector_id=?"));
    RAG_ASSIGN_OR_RETURN(reader->stale_count,
                         database.prepare("SELECT COUNT(*) FROM documents WHERE "
                                          "embedding_source<>? OR tokenizer_source<>?"));
    RAG_ASSIGN_OR_RETURN(reader->stale,
                         database.prepare("SELECT id, title, text, embedding_source, embedding "
                                          "FROM documents WHERE embedding_source<>? OR "
                                          "tokenizer_source<>? ORDER BY vector_id LIMIT ?"));
    return reader;
  }
};

// A reader taken from the pool, with a read transaction open: everything read through one lease is
// of one state of the store.
class DocumentStore::ReaderLease {
 public:
  ReaderLease(DocumentStore* store, std::unique_ptr<Reader> reader)
      : store_(store), reader_(std::move(reader)) {}
  ~ReaderLease() {
    snapshot_.reset();
    {
      const std::lock_guard lock(store_->readers_mutex_);
      store_->readers_.push_back(std::move(reader_));
    }
    store_->reader_returned_.notify_one();
  }
  ReaderLease(const ReaderLease&) = delete;
  ReaderLease& operator=(const ReaderLease&) = delete;

  absl::Status begin() {
    RAG_ASSIGN_OR_RETURN(
        SqliteTransaction transaction,
        SqliteTransaction::begin(*reader_->database, SqliteTransaction::Mode::kRead));
    snapshot_.emplace(std::move(transaction));
    return absl::OkStatus();
  }
  Reader* operator->() { return reader_.get(); }

 private:
  DocumentStore* const store_;
  std::unique_ptr<Reader> reader_;
  std::optional<SqliteTransaction> snapshot_;
};

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
  RAG_RETURN_IF_ERROR(store->create_layout(path));
  RAG_ASSIGN_OR_RETURN(store->embedding_source_,
                       store->source_number("embedding", sources.embedding_model));
  RAG_ASSIGN_OR_RETURN(store->tokenizer_source_,
                       store->source_number("tokenizer", sources.tokenizer));

  SqliteDatabase& database = *store->writer_->database;
  RAG_ASSIGN_OR_RETURN(
      store->writer_->insert,
      database.prepare("INSERT INTO documents (id, embedding_source, tokenizer_source, "
                       "content_digest, token_digest, title, embedding, tokens, text) "
                       "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  RAG_ASSIGN_OR_RETURN(store->writer_->erase,
                       database.prepare("DELETE FROM documents WHERE id=? RETURNING vector_id"));
  RAG_ASSIGN_OR_RETURN(SqliteStatement count, database.prepare("SELECT COUNT(*) FROM documents"));
  RAG_ASSIGN_OR_RETURN(const bool counted, count.step());
  RAG_CHECK(counted);
  store->document_count_ = static_cast<uint64_t>(count.integer(0));

  for (int i = 0; i < readers; ++i) {
    RAG_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, Reader::open(path));
    store->readers_.push_back(std::move(reader));
  }
  return store;
}

absl::Status DocumentStore::create_layout(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(writer_->database, SqliteDatabase::open(path));
  SqliteDatabase& database = *writer_->database;
  RAG_ASSIGN_OR_RETURN(SqliteTransaction transaction,
                       SqliteTransaction::begin(database, SqliteTransaction::Mode::kWrite));
  RAG_ASSIGN_OR_RETURN(SqliteStatement version, database.prepare("PRAGMA user_version"));
  RAG_ASSIGN_OR_RETURN(const bool has_version, version.step());
  RAG_CHECK(has_version);
  const int64_t found = version.integer(0);
  version.reset();
  if (found == 0) {
    RAG_RETURN_IF_ERROR(database.execute(kLayout));
    RAG_RETURN_IF_ERROR(
        database.execute("INSERT INTO properties VALUES ('store_id', randomblob(32))"));
    RAG_RETURN_IF_ERROR(database.execute(absl::StrCat("PRAGMA user_version=", kLayoutVersion)));
  } else if (found != kLayoutVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("database ", path, " has layout ", found, ", this program reads ",
                     kLayoutVersion, ": use the program that wrote it, or another state_dir"));
  }
  RAG_ASSIGN_OR_RETURN(SqliteStatement select,
                       database.prepare("SELECT value FROM properties WHERE name='store_id'"));
  RAG_ASSIGN_OR_RETURN(const bool has_id, select.step());
  if (!has_id) return absl::DataLossError(absl::StrCat("database ", path, " has no store_id"));
  store_id_ = digest_from(select.blob(0));
  select.reset();
  return transaction.commit();
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

DocumentStore::ReaderLease DocumentStore::lease_reader() {
  std::unique_lock lock(readers_mutex_);
  reader_returned_.wait(lock, [this] { return !readers_.empty(); });
  std::unique_ptr<Reader> reader = std::move(readers_.back());
  readers_.pop_back();
  return ReaderLease(this, std::move(reader));
}

absl::StatusOr<std::vector<bool>> DocumentStore::are_current(
    std::span<const DocumentText> documents) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  std::vector<bool> current;
  current.reserve(documents.size());
  for (const DocumentText& document : documents) {
    const Digest digest = content_digest(document.title, document.text);
    RAG_ASSIGN_OR_RETURN(const bool found, reader->is_current
                                               .bind(document.id, std::span<const uint8_t>(digest),
                                                     embedding_source_, tokenizer_source_)
                                               .step());
    current.push_back(found);
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
    RAG_ASSIGN_OR_RETURN(const bool found, reader->by_vector.bind(vectors[i]).step());
    if (found) records[i] = read_record(reader->by_vector);
    reader->by_vector.reset();
  }
  return records;
}

absl::StatusOr<std::vector<std::optional<DocumentRecord>>> DocumentStore::find_by_id(
    std::span<const std::string> ids) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  std::vector<std::optional<DocumentRecord>> records(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(const bool found, reader->by_id.bind(ids[i]).step());
    if (found) records[i] = read_record(reader->by_id);
    reader->by_id.reset();
  }
  return records;
}

absl::StatusOr<std::vector<DocumentSummary>> DocumentStore::list(std::string_view after_id,
                                                                 uint32_t limit) {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->list.bind(after_id, int64_t{limit});
  std::vector<DocumentSummary> summaries;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, rows.step());
    if (!found) return summaries;
    summaries.push_back({.id = std::string(rows.text(0)),
                         .title = std::string(rows.text(1)),
                         .content_digest = digest_from(rows.blob(2)),
                         .token_digest = digest_from(rows.blob(3))});
  }
}

absl::StatusOr<std::vector<VectorId>> DocumentStore::current_vectors() {
  ReaderLease reader = lease_reader();
  RAG_RETURN_IF_ERROR(reader.begin());
  SqliteStatement& rows = reader->vectors.bind(embedding_source_);
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
      const std::vector<float> embedding = from_bytes<float>(reader->embedding.blob(0));
      if (embedding.size() != dimension_) {
        return absl::DataLossError(absl::StrCat("database ", reader->database->path(), ": vector ",
                                                vector, " has ", embedding.size(),
                                                " components, not ", dimension_));
      }
      visit(vector, embedding);
    }
    reader->embedding.reset();
  }
  return absl::OkStatus();
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
    StaleDocument document;
    document.text = {.id = std::string(rows.text(0)),
                     .title = std::string(rows.text(1)),
                     .text = std::string(rows.text(2))};
    if (rows.integer(3) == embedding_source_) {
      document.embedding = from_bytes<float>(rows.blob(4));
    }
    documents.push_back(std::move(document));
  }
}

absl::StatusOr<DocumentWriter> DocumentStore::begin_write() {
  std::unique_lock lock(write_mutex_);
  RAG_ASSIGN_OR_RETURN(
      SqliteTransaction transaction,
      SqliteTransaction::begin(*writer_->database, SqliteTransaction::Mode::kWrite));
  return DocumentWriter(this, std::move(lock), std::move(transaction));
}

absl::StatusOr<DocumentWriter::Stored> DocumentWriter::put(const DocumentRecord& document,
                                                           std::span<const float> embedding) {
  RAG_CHECK(embedding.size() == store_->dimension_);
  Stored stored;
  RAG_ASSIGN_OR_RETURN(stored.replaced, erase(document.id));
  DocumentStore::Writer& writer = *store_->writer_;
  RAG_RETURN_IF_ERROR(writer.insert
                          .bind(document.id, store_->embedding_source_, store_->tokenizer_source_,
                                std::span<const uint8_t>(document.content_digest),
                                std::span<const uint8_t>(document.token_digest), document.title,
                                as_bytes(embedding),
                                as_bytes(std::span<const uint32_t>(document.segment_tokens)),
                                document.text)
                          .run());
  stored.vector = writer.database->last_insert_id();
  ++count_change_;
  return stored;
}

absl::StatusOr<std::optional<VectorId>> DocumentWriter::erase(std::string_view id) {
  SqliteStatement& statement = store_->writer_->erase;
  RAG_ASSIGN_OR_RETURN(const bool found, statement.bind(id).step());
  if (!found) return std::nullopt;
  const VectorId vector = statement.integer(0);
  // RETURNING gives its rows first and finishes the delete on the step after the last.
  RAG_RETURN_IF_ERROR(statement.run());
  --count_change_;
  return vector;
}

absl::Status DocumentWriter::commit() {
  RAG_RETURN_IF_ERROR(transaction_.commit());
  store_->document_count_ += static_cast<uint64_t>(count_change_);
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
