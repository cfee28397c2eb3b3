#include "common/store/sqlite.h"

#include <sqlite3.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace ragcache {
namespace {

constexpr int kBusyTimeoutMs = 3000;

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      bind_error_(other.bind_error_) {}

SqliteStatement& SqliteStatement::operator=(SqliteStatement&& other) noexcept {
  std::swap(database_, other.database_);
  std::swap(statement_, other.statement_);
  std::swap(bind_error_, other.bind_error_);
  return *this;
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

absl::StatusOr<bool> SqliteStatement::step() {
  RAG_CHECK(statement_ != nullptr);
  if (bind_error_ != SQLITE_OK) return database_->error(bind_error_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_);
    return false;
  }
  absl::Status status = database_->error(code);
  sqlite3_reset(statement_);
  return status;
}

absl::Status SqliteStatement::run() {
  while (true) {
    RAG_ASSIGN_OR_RETURN(const bool row, step());
    if (!row) return absl::OkStatus();
  }
}

void SqliteStatement::reset() {
  sqlite3_reset(statement_);
  bind_error_ = SQLITE_OK;
}

void SqliteStatement::bind_one(int position, int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_, position, value); code != SQLITE_OK) {
    bind_error_ = code;
  }
}

void SqliteStatement::bind_one(int position, std::optional<int64_t> value) {
  if (value.has_value()) return bind_one(position, *value);
  if (const int code = sqlite3_bind_null(statement_, position); code != SQLITE_OK) {
    bind_error_ = code;
  }
}

void SqliteStatement::bind_one(int position, std::string_view value) {
  // A null pointer would bind NULL, which is not the empty text.
  const char* data = value.empty() ? "" : value.data();
  const int code =
      sqlite3_bind_text64(statement_, position, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
}

void SqliteStatement::bind_one(int position, std::span<const uint8_t> value) {
  const int code = value.empty() ? sqlite3_bind_zeroblob(statement_, position, 0)
                                 : sqlite3_bind_blob64(statement_, position, value.data(),
                                                       value.size(), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) bind_error_ = code;
}

bool SqliteStatement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t SqliteStatement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string_view SqliteStatement::text(int column) const {
  const unsigned char* data = sqlite3_column_text(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(size)};
}

std::span<const uint8_t> SqliteStatement::blob(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return {static_cast<const uint8_t*>(data), static_cast<size_t>(size)};
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  // Even a failed open gives a handle that must be closed.
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path, handle));
  if (code != SQLITE_OK) return database->error(code);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  RAG_RETURN_IF_ERROR(database->execute(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"));
  return database;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(handle_); }

absl::Status SqliteDatabase::execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : error(code);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return error(code);
  return SqliteStatement(this, statement);
}

int64_t SqliteDatabase::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }

absl::Status SqliteDatabase::error(int code) const {
  const char* detail = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  const std::string prefix = absl::StrCat("database ", path_, ": ");
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(
          absl::StrCat(prefix, detail,
                       ": restore it from a copy, save what can be read with 'sqlite3 FILE "
                       ".recover', or move it away to start anew"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(
          absl::StrCat(prefix, detail, ": another process holds it; stop that process first"));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(
          absl::StrCat(prefix, detail, ": check that its folder exists and can be written"));
    case SQLITE_FULL:
      return absl::UnavailableError(absl::StrCat(prefix, detail, ": free space and try again"));
    case SQLITE_IOERR:
      return absl::UnavailableError(
          absl::StrCat(prefix, detail, ": ",
                       std::strerror(handle_ == nullptr ? 0 : sqlite3_system_errno(handle_))));
    default:
      return absl::InternalError(absl::StrCat(prefix, detail, " (code ", code, ")"));
  }
}

absl::StatusOr<SqliteTransaction> SqliteTransaction::begin(SqliteDatabase& database, Mode mode) {
  RAG_RETURN_IF_ERROR(database.execute(mode == Mode::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  return SqliteTransaction(database);
}

SqliteTransaction::SqliteTransaction(SqliteTransaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

SqliteTransaction::~SqliteTransaction() {
  // Fails only when SQLite has rolled back already, which is what is wanted.
  if (database_ != nullptr) database_->execute("ROLLBACK").IgnoreError();
}

absl::Status SqliteTransaction::commit() {
  RAG_CHECK(database_ != nullptr);
  RAG_RETURN_IF_ERROR(database_->execute("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace ragcache
