#include "common/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/strings.h"

namespace ragcache {

absl::StatusOr<MappedFile> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, str_cat("cannot open ", path));
  absl::Cleanup close_descriptor = [descriptor] { ::close(descriptor); };
  struct stat info;
  if (::fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, str_cat("cannot stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(str_cat(path, " is not a regular file"));
  }
  if (info.st_size == 0) return absl::InvalidArgumentError(str_cat(path, " is empty"));
  const auto size = static_cast<size_t>(info.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, str_cat("cannot map ", path));
  }
  return MappedFile({static_cast<const uint8_t*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace ragcache
