#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ragcache {

// Makes `path` and its missing parents. PERMISSION_DENIED if the folder cannot be written.
absl::Status make_writable_folder(const std::string& path);

// An advisory lock on a folder: held by one process at a time, gone when that process is.
class FolderLock {
 public:
  // UNAVAILABLE if another holder has it.
  static absl::StatusOr<FolderLock> acquire(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

// A file that appears whole or not at all: written under another name in the same folder, synced,
// renamed over `path`, and the folder synced. Without commit() the old file stays.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  absl::Status append(std::span<const uint8_t> bytes);
  // Replaces bytes that were appended before.
  absl::Status overwrite(uint64_t offset, std::span<const uint8_t> bytes);
  absl::Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;
  int descriptor_;
};

}  // namespace ragcache
