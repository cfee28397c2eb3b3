#include "services/retrieval/documents/layout.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"
#include "services/retrieval/documents/document.h"

namespace ragcache::retrieval {
namespace {

constexpr int64_t kLayoutVersion = 2;

constexpr char kPropertiesAndSources[] = R"sql(
  CREATE TABLE properties (name TEXT PRIMARY KEY, value BLOB NOT NULL);
  INSERT INTO properties VALUES ('store_id', randomblob(32));
  CREATE TABLE sources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    UNIQUE (kind, fingerprint));
)sql";

// AUTOINCREMENT keeps a number from being used twice, also across deletes and restarts. Blobs come
// last, so that reads of the small columns skip their overflow pages.
//
// The change log of a corpus is its pieces and its removals by sequence: an addition that was
// removed since is seen as its removal alone. corpora.trimmed is the sequence up to which removals
// have been forgotten.
constexpr char kCorporaAndDocuments[] = R"sql(
  CREATE TABLE corpora (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    cache_scope INTEGER NOT NULL,
    chunk_tokens INTEGER,
    chunk_overlap_tokens INTEGER,
    sequence INTEGER NOT NULL DEFAULT 0,
    trimmed INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    corpus INTEGER NOT NULL REFERENCES corpora(number),
    id TEXT NOT NULL,
    placement INTEGER NOT NULL,
    embedding_source INTEGER NOT NULL REFERENCES sources(number),
    tokenizer_source INTEGER NOT NULL REFERENCES sources(number),
    chunk_tokens INTEGER NOT NULL,
    chunk_overlap_tokens INTEGER NOT NULL,
    pieces INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    content_digest BLOB NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT NOT NULL,
    UNIQUE (corpus, id));
  CREATE INDEX documents_by_source ON documents (embedding_source, tokenizer_source);
  CREATE TABLE pieces (
    vector_id INTEGER PRIMARY KEY AUTOINCREMENT,
    corpus INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents(number),
    number INTEGER NOT NULL,
    overlap_bytes INTEGER NOT NULL,
    token_digest BLOB NOT NULL,
    embedding BLOB NOT NULL,
    tokens BLOB NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (document, number),
    UNIQUE (corpus, sequence));
  CREATE TABLE removals (
    corpus INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    vector_id INTEGER NOT NULL,
    placement INTEGER NOT NULL,
    PRIMARY KEY (corpus, sequence)) WITHOUT ROWID;
)sql";

// Version 1 had one corpus and whole documents: document n becomes document n with piece n, which
// is also its place in the change log. The number that the next vector gets stays.
constexpr char kPiecesFromVersion1[] = R"sql(
  INSERT INTO pieces SELECT vector_id, 1, vector_id, vector_id, 1, 0, token_digest, embedding,
                            tokens, text FROM version1;
  DELETE FROM sqlite_sequence WHERE name='pieces';
  INSERT INTO sqlite_sequence SELECT 'pieces', seq FROM sqlite_sequence WHERE name='version1';
  UPDATE corpora SET sequence=COALESCE((SELECT MAX(vector_id) FROM version1), 0);
  DROP TABLE version1;
)sql";

absl::Status insert_default_corpus(SqliteDatabase& database) {
  RAG_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.prepare("INSERT INTO corpora (number, name, cache_scope) VALUES (1, ?, ?)"));
  return insert.bind(kDefaultCorpus, static_cast<int64_t>(CacheScope::kTenant)).run();
}

absl::Status migrate_from_version1(SqliteDatabase& database) {
  const TimePoint started = steady_now();
  RAG_RETURN_IF_ERROR(database.execute(
      "DROP INDEX documents_by_source; ALTER TABLE documents RENAME TO version1;"));
  RAG_RETURN_IF_ERROR(database.execute(kCorporaAndDocuments));
  RAG_RETURN_IF_ERROR(insert_default_corpus(database));
  RAG_ASSIGN_OR_RETURN(SqliteStatement select,
                       database.prepare("SELECT vector_id, id FROM version1"));
  RAG_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.prepare("INSERT INTO documents SELECT vector_id, 1, id, ?, embedding_source, "
                       "tokenizer_source, 0, 0, 1, length(tokens)/4, content_digest, title, '' "
                       "FROM version1 WHERE vector_id=?"));
  uint64_t documents = 0;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool found, select.step());
    if (!found) break;
    const Placement placement = placement_of(select.text(1));
    RAG_RETURN_IF_ERROR(insert.bind(static_cast<int64_t>(placement), select.integer(0)).run());
    ++documents;
  }
  RAG_RETURN_IF_ERROR(database.execute(kPiecesFromVersion1));
  log::info("documents.db brought from layout 1 to 2: its documents are in the default corpus",
            {{"documents", documents}, {"seconds", to_seconds(steady_now() - started)}});
  return absl::OkStatus();
}

}  // namespace

absl::Status prepare_layout(SqliteDatabase& database) {
  RAG_ASSIGN_OR_RETURN(SqliteTransaction transaction,
                       SqliteTransaction::begin(database, SqliteTransaction::Mode::kWrite));
  RAG_ASSIGN_OR_RETURN(SqliteStatement version, database.prepare("PRAGMA user_version"));
  RAG_ASSIGN_OR_RETURN(const bool has_version, version.step());
  RAG_CHECK(has_version);
  const int64_t found = version.integer(0);
  version.reset();
  switch (found) {
    case 0:
      RAG_RETURN_IF_ERROR(database.execute(kPropertiesAndSources));
      RAG_RETURN_IF_ERROR(database.execute(kCorporaAndDocuments));
      RAG_RETURN_IF_ERROR(insert_default_corpus(database));
      break;
    case 1:
      RAG_RETURN_IF_ERROR(migrate_from_version1(database));
      break;
    case kLayoutVersion:
      break;
    default:
      return absl::FailedPreconditionError(absl::StrCat(
          "database ", database.path(), " has layout ", found, ", this program reads up to ",
          kLayoutVersion, ": use the program that wrote it, or another state_dir"));
  }
  RAG_RETURN_IF_ERROR(database.execute(absl::StrCat("PRAGMA user_version=", kLayoutVersion)));
  return transaction.commit();
}

}  // namespace ragcache::retrieval
