#include "common/store/sqlite.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ragcache {
namespace {

class Sqlite : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "sqlite_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/x.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SqliteDatabase> open() {
    auto database = SqliteDatabase::open(path_);
    EXPECT_TRUE(database.ok()) << database.status();
    return *std::move(database);
  }

  int64_t count(SqliteDatabase& database) {
    auto statement = database.prepare("SELECT COUNT(*) FROM t");
    EXPECT_TRUE(statement.ok()) << statement.status();
    EXPECT_TRUE(statement->step().value());
    return statement->integer(0);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(Sqlite, GivesBackTextAndBlobsWithZerosInsideAndEmptyOnes) {
  auto database = open();
  ASSERT_TRUE(database->execute("CREATE TABLE t (a TEXT NOT NULL, b BLOB NOT NULL)").ok());
  const std::string texts[] = {std::string("a\0b", 3), "", "\xc3\xa9"};
  const std::vector<uint8_t> blobs[] = {{0, 1, 0}, {}, {255}};
  auto insert = database->prepare("INSERT INTO t VALUES (?, ?)");
  ASSERT_TRUE(insert.ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(insert->bind(texts[i], std::span<const uint8_t>(blobs[i])).run().ok());
  }
  auto select = database->prepare("SELECT a, b FROM t ORDER BY rowid");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(select->step().value());
    EXPECT_EQ(select->text(0), texts[i]);
    const auto blob = select->blob(1);
    EXPECT_EQ(std::vector<uint8_t>(blob.begin(), blob.end()), blobs[i]);
  }
  EXPECT_FALSE(select->step().value());
}

TEST_F(Sqlite, DropsATransactionThatIsNotCommitted) {
  auto database = open();
  ASSERT_TRUE(database->execute("CREATE TABLE t (a INTEGER)").ok());
  {
    auto transaction = SqliteTransaction::begin(*database, SqliteTransaction::Mode::kWrite);
    ASSERT_TRUE(database->execute("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(count(*database), 0);
  {
    auto transaction = SqliteTransaction::begin(*database, SqliteTransaction::Mode::kWrite);
    ASSERT_TRUE(database->execute("INSERT INTO t VALUES (1)").ok());
    ASSERT_TRUE(transaction->commit().ok());
  }
  EXPECT_EQ(count(*database), 1);
}

TEST_F(Sqlite, KeepsAReadersSnapshotWhileAWriterCommits) {
  auto writer = open();
  ASSERT_TRUE(writer->execute("CREATE TABLE t (a INTEGER)").ok());
  auto reader = open();
  auto snapshot = SqliteTransaction::begin(*reader, SqliteTransaction::Mode::kRead);
  EXPECT_EQ(count(*reader), 0);
  ASSERT_TRUE(writer->execute("INSERT INTO t VALUES (1)").ok());
  EXPECT_EQ(count(*reader), 0);
  ASSERT_TRUE(snapshot->commit().ok());
  EXPECT_EQ(count(*reader), 1);
}

TEST_F(Sqlite, NamesAFileThatIsNoDatabase) {
  std::ofstream(path_) << std::string(8192, 'x');
  const auto database = SqliteDatabase::open(path_);
  ASSERT_EQ(database.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(database.status().message().find(path_), std::string::npos);
}

TEST_F(Sqlite, RefusesAFileInAMissingFolder) {
  const auto database = SqliteDatabase::open(folder_ + "/none/x.db");
  EXPECT_EQ(database.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(Sqlite, ReportsALockedFile) {
  auto holder = open();
  ASSERT_TRUE(holder->execute("CREATE TABLE t (a INTEGER)").ok());
  auto transaction = SqliteTransaction::begin(*holder, SqliteTransaction::Mode::kWrite);
  ASSERT_TRUE(transaction.ok());
  auto other = open();
  const auto second = SqliteTransaction::begin(*other, SqliteTransaction::Mode::kWrite);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("another process"), std::string::npos);
}

}  // namespace
}  // namespace ragcache
