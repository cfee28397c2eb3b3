#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/http/inflate.h"

namespace ragcache {

// The bytes of a file, inflated if they begin as gzip does. One thread.
class InputFile {
 public:
  // What is inflated may be so many times as long as what was read, once it is longer than the
  // second bound: a file that grows more was made to fill memory or disks.
  static constexpr uint64_t kInflateRatioMax = 200;
  static constexpr uint64_t kInflatedBytesFree = 64 << 20;

  // "-" is standard input. INVALID_ARGUMENT if it cannot be read; messages do not name the file.
  static absl::StatusOr<InputFile> open(const std::string& path);

  // The next bytes, none at the end. The view lives until the next call.
  absl::StatusOr<std::string_view> read();
  // All of it. INVALID_ARGUMENT if it is longer than `max_bytes`.
  absl::StatusOr<std::string> read_all(size_t max_bytes);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  explicit InputFile(File file) : file_(std::move(file)) {}

  absl::StatusOr<std::string_view> read_raw();

  File file_;
  std::string buffer_;
  bool begun_ = false;
  std::optional<http::Inflater> inflater_;  // if it is gzip
  uint64_t raw_bytes_ = 0;
  uint64_t inflated_bytes_ = 0;
};

}  // namespace ragcache
