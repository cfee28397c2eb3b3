#include "common/store/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ragcache {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "file_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_TRUE(make_writable_folder(folder_ + "/deep").ok());
    path_ = folder_ + "/deep/x";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TEST_F(File, KeepsTheOldContentUntilTheNewIsCommitted) {
  {
    auto file = AtomicFile::create(path_);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append(bytes_of("....first")).ok());
    ASSERT_TRUE(file->overwrite(0, bytes_of("head")).ok());
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(read_all(path_), "headfirst");
  {
    auto file = AtomicFile::create(path_);
    ASSERT_TRUE(file->append(bytes_of("half")).ok());
  }
  EXPECT_EQ(read_all(path_), "headfirst");
  const auto folder = std::filesystem::directory_iterator(folder_ + "/deep");
  EXPECT_EQ(std::distance(begin(folder), end(folder)), 1);
}

TEST_F(File, LocksAFolderOnceUntilReleased) {
  {
    auto lock = FolderLock::acquire(folder_);
    ASSERT_TRUE(lock.ok());
    const auto second = FolderLock::acquire(folder_);
    ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(second.status().message().find(folder_), std::string::npos);
  }
  EXPECT_TRUE(FolderLock::acquire(folder_).ok());
}

TEST_F(File, RefusesAFolderThatIsAFile) {
  std::ofstream(path_) << "x";
  const absl::Status status = make_writable_folder(path_);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path_), std::string::npos);
  EXPECT_FALSE(make_writable_folder(path_ + "/under").ok());
}

}  // namespace
}  // namespace ragcache
