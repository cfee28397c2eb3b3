#include "services/retrieval/documents/connections.h"

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::retrieval {
namespace {

struct Row {
  SqliteStatement* statement;
  std::string sql;
};

absl::Status prepare_all(const SqliteDatabase& database, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    RAG_ASSIGN_OR_RETURN(*row.statement, database.prepare(row.sql));
  }
  return absl::OkStatus();
}

// In the order that read_piece() takes them.
constexpr char kPieceColumns[] =
    "SELECT d.id, d.pieces, p.number, d.title, p.text, d.metadata, p.tokens, p.token_digest "
    "FROM pieces p JOIN documents d ON d.number=p.document ";

}  // namespace

absl::Status DocumentStore::Writer::prepare() {
  return prepare_all(
      *database,
      {{&insert_document,
        "INSERT INTO documents (corpus, id, placement, embedding_source, tokenizer_source, "
        "chunk_tokens, chunk_overlap_tokens, pieces, tokens, content_digest, title, metadata) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
       {&insert_piece,
        "INSERT INTO pieces (corpus, sequence, document, number, overlap_bytes, token_digest, "
        "embedding, tokens, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"},
       {&insert_removal, "INSERT INTO removals VALUES (?, ?, ?, ?)"},
       {&find_document, "SELECT number, placement FROM documents WHERE corpus=? AND id=?"},
       {&erase_document, "DELETE FROM documents WHERE number=?"},
       {&erase_pieces, "DELETE FROM pieces WHERE document=? RETURNING vector_id"},
       {&set_sequence, "UPDATE corpora SET sequence=? WHERE number=?"},
       {&last_removal_to_forget,
        "SELECT sequence FROM removals WHERE corpus=? ORDER BY sequence DESC LIMIT 1 OFFSET ?"},
       {&forget_removals, "DELETE FROM removals WHERE corpus=? AND sequence<=?"},
       {&set_trimmed, "UPDATE corpora SET trimmed=? WHERE number=?"}});
}

absl::StatusOr<std::unique_ptr<DocumentStore::Reader>> DocumentStore::Reader::open(
    const std::string& path) {
  auto reader = std::make_unique<Reader>();
  RAG_ASSIGN_OR_RETURN(reader->database, SqliteDatabase::open(path));
  RAG_RETURN_IF_ERROR(prepare_all(
      *reader->database,
      {{&reader->is_current,
        "SELECT pieces FROM documents WHERE corpus=? AND id=? AND content_digest=? AND metadata=? "
        "AND embedding_source=? AND tokenizer_source=? "
        "AND (pieces=1 AND tokens<=? OR chunk_tokens=? AND chunk_overlap_tokens=?)"},
       {&reader->piece_by_vector, absl::StrCat(kPieceColumns, "WHERE p.vector_id=?")},
       {&reader->pieces_by_id,
        absl::StrCat(kPieceColumns, "WHERE d.corpus=? AND d.id=? ORDER BY p.number")},
       {&reader->piece_by_number,
        absl::StrCat(kPieceColumns, "WHERE d.corpus=? AND d.id=? AND d.pieces>1 AND p.number=?")},
       {&reader->list,
        "SELECT id, title, metadata, content_digest FROM documents WHERE corpus=? AND id>? "
        "ORDER BY id LIMIT ?"},
       {&reader->additions,
        "SELECT p.sequence, p.vector_id, d.placement, p.embedding "
        "FROM pieces p CROSS JOIN documents d ON d.number=p.document "
        "WHERE p.corpus=? AND p.sequence>? AND d.embedding_source=? ORDER BY p.sequence LIMIT ?"},
       {&reader->removals,
        "SELECT sequence, vector_id, placement FROM removals WHERE corpus=? AND sequence>? "
        "ORDER BY sequence LIMIT ?"},
       {&reader->log_bounds, "SELECT trimmed, sequence FROM corpora WHERE number=?"},
       {&reader->vectors,
        "SELECT p.vector_id FROM pieces p JOIN documents d ON d.number=p.document "
        "WHERE d.corpus=? AND d.embedding_source=? ORDER BY d.id, p.number"},
       {&reader->embedding, "SELECT embedding FROM pieces WHERE vector_id=?"},
       {&reader->metadata,
        "SELECT p.vector_id, d.metadata FROM pieces p JOIN documents d ON d.number=p.document "
        "WHERE d.corpus=? ORDER BY p.vector_id"},
       {&reader->stale_count,
        "SELECT COUNT(*) FROM documents WHERE embedding_source<>? OR tokenizer_source<>?"},
       {&reader->stale,
        "SELECT number, corpus, id, title, metadata, embedding_source FROM documents "
        "WHERE embedding_source<>? OR tokenizer_source<>? ORDER BY number LIMIT ?"},
       {&reader->stale_pieces,
        "SELECT text, overlap_bytes, embedding FROM pieces WHERE document=? ORDER BY number"}}));
  return reader;
}

}  // namespace ragcache::retrieval
