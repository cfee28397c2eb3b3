#include "common/store/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/status.h"

namespace ragcache {
namespace {

absl::Status errno_status(int error, absl::string_view action, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", action, " ", path));
}

std::string folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

absl::Status make_writable_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return errno_status(error.value(), "create folder", path);
  if (!std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a folder"));
  }
  // access() alone says yes to root on a read-only mount's permission bits.
  const std::string probe = absl::StrCat(path, "/.probe.", getpid());
  const int descriptor = ::open(probe.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno_status(errno, "write to folder", path);
  ::close(descriptor);
  ::unlink(probe.c_str());
  return absl::OkStatus();
}

absl::StatusOr<FolderLock> FolderLock::acquire(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int descriptor = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno_status(errno, "open", path);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(descriptor);
    if (error != EWOULDBLOCK) return errno_status(error, "lock", path);
    return absl::UnavailableError(absl::StrCat(
        "folder ", folder, " is in use by another process: stop it, or choose another state_dir"));
  }
  return FolderLock(descriptor);
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<AtomicFile> AtomicFile::create(const std::string& path) {
  std::string temporary = path + ".new";
  const int descriptor = ::open(temporary.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
  if (descriptor < 0) return errno_status(errno, "create", temporary);
  return AtomicFile(path, std::move(temporary), descriptor);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

absl::Status AtomicFile::append(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", temporary_);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::overwrite(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", temporary_);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::commit() {
  RAG_CHECK(descriptor_ >= 0);
  if (::fsync(descriptor_) != 0) return errno_status(errno, "sync", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return errno_status(errno, "rename", temporary_);
  }
  ::close(std::exchange(descriptor_, -1));
  const std::string folder = folder_of(path_);
  const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) return errno_status(errno, "open", folder);
  const int result = ::fsync(folder_descriptor);
  const int error = errno;
  ::close(folder_descriptor);
  return result == 0 ? absl::OkStatus() : errno_status(error, "sync", folder);
}

}  // namespace ragcache
