#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ragcache {

class SqliteDatabase;

// One prepared statement. Binding copies its argument. A failed bind is reported by the next
// step(). Owned by one thread at a time; must not outlive its database.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&& other) noexcept;
  ~SqliteStatement();

  // Forgets the last run's row and binds parameters 1..n in order.
  template <typename... Values>
  SqliteStatement& bind(const Values&... values) {
    reset();
    int position = 0;
    (bind_one(++position, values), ...);
    return *this;
  }

  // True: a row is there to read. False: the statement has ended.
  absl::StatusOr<bool> step();
  // Runs a statement to its end, dropping its rows.
  absl::Status run();
  // Ends the run, so that no read transaction stays open behind it.
  void reset();

  // Values of the current row; views last until the next step(), reset() or bind().
  // REQUIRES: step() gave true, column < number of columns.
  bool is_null(int column) const;
  int64_t integer(int column) const;
  std::string_view text(int column) const;
  std::span<const uint8_t> blob(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(const SqliteDatabase* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}

  void bind_one(int position, int64_t value);
  void bind_one(int position, std::optional<int64_t> value);  // none is NULL
  void bind_one(int position, std::string_view value);
  void bind_one(int position, const std::string& value) {
    bind_one(position, std::string_view(value));
  }
  void bind_one(int position, std::span<const uint8_t> value);

  const SqliteDatabase* database_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
  int bind_error_ = 0;
};

// One connection. Owned by one thread at a time. Errors name the file:
//   DATA_LOSS            the file is damaged or no database
//   UNAVAILABLE          another process holds it for longer than the busy timeout, the disk is full,
//                        or I/O failed
//   PERMISSION_DENIED    it cannot be opened or written
class SqliteDatabase {
 public:
  // Creates the file if it is missing. Journal: write-ahead log; a commit is on disk when it
  // returns (synchronous=FULL).
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Runs statements without parameters and drops their rows.
  absl::Status execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> prepare(std::string_view sql) const;
  int64_t last_insert_id() const;
  const std::string& path() const { return path_; }

  // The Status of an SQLite result code, with the database's own message.
  absl::Status error(int code) const;

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
};

// Rolls back when it leaves scope uncommitted. Must not outlive its database.
class SqliteTransaction {
 public:
  enum class Mode { kRead, kWrite };

  static absl::StatusOr<SqliteTransaction> begin(SqliteDatabase& database, Mode mode);
  SqliteTransaction(SqliteTransaction&& other) noexcept;
  SqliteTransaction& operator=(SqliteTransaction&&) = delete;
  ~SqliteTransaction();

  // If it fails, nothing of the transaction remains.
  absl::Status commit();

 private:
  explicit SqliteTransaction(SqliteDatabase& database) : database_(&database) {}

  SqliteDatabase* database_;
};

}  // namespace ragcache
