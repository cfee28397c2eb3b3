#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "common/store/sqlite.h"
#include "services/retrieval/documents/document_store.h"

// The connections of a document store with their prepared statements. Private to documents/.
namespace ragcache::retrieval {

struct DocumentStore::Writer {
  std::unique_ptr<SqliteDatabase> database;
  SqliteStatement insert_document;
  SqliteStatement insert_piece;
  SqliteStatement insert_removal;
  SqliteStatement find_document;
  SqliteStatement erase_document;
  SqliteStatement erase_pieces;
  SqliteStatement set_sequence;
  SqliteStatement last_removal_to_forget;
  SqliteStatement forget_removals;
  SqliteStatement set_trimmed;

  absl::Status prepare();
};

struct DocumentStore::Reader {
  std::unique_ptr<SqliteDatabase> database;
  SqliteStatement is_current;
  SqliteStatement piece_by_vector;
  SqliteStatement pieces_by_id;
  SqliteStatement piece_by_number;
  SqliteStatement list;
  SqliteStatement additions;
  SqliteStatement removals;
  SqliteStatement log_bounds;
  SqliteStatement vectors;
  SqliteStatement embedding;
  SqliteStatement metadata;
  SqliteStatement stale_count;
  SqliteStatement stale;
  SqliteStatement stale_pieces;

  static absl::StatusOr<std::unique_ptr<Reader>> open(const std::string& path);
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

}  // namespace ragcache::retrieval
