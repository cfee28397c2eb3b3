#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace ragcache {

// A regular file mapped read-only for as long as the object lives. Whoever parses it owns it; any
// thread may read the bytes. A file that another process cuts short while it is mapped raises
// SIGBUS: weights are replaced by renaming, never in place.
class MappedFile {
 public:
  // NOT_FOUND if there is none, INVALID_ARGUMENT if it is empty or no regular file.
  static absl::StatusOr<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> bytes_;
};

}  // namespace ragcache
