#include "services/ragcache/ingest/input_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr std::string_view kGzipMark = "\x1f\x8b";

}  // namespace

absl::StatusOr<InputFile> InputFile::open(const std::string& path) {
  if (path == "-") return InputFile(File(stdin, [](std::FILE*) { return 0; }));
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return absl::InvalidArgumentError(std::strerror(errno));
  return InputFile(std::move(file));
}

absl::StatusOr<std::string_view> InputFile::read_raw() {
  buffer_.resize(kBufferBytes);
  buffer_.resize(std::fread(buffer_.data(), 1, kBufferBytes, file_.get()));
  if (std::ferror(file_.get())) return absl::InvalidArgumentError(std::strerror(errno));
  raw_bytes_ += buffer_.size();
  return std::string_view(buffer_);
}

absl::StatusOr<std::string_view> InputFile::read() {
  while (true) {
    if (inflater_.has_value()) {
      absl::StatusOr<std::string_view> piece = inflater_->next();
      if (!piece.ok()) return absl::InvalidArgumentError("is no valid gzip");
      inflated_bytes_ += piece->size();
      if (inflated_bytes_ > kInflatedBytesFree && inflated_bytes_ > raw_bytes_ * kInflateRatioMax) {
        return absl::InvalidArgumentError(
            absl::StrCat("inflates to more than ", kInflateRatioMax, " times its size"));
      }
      if (!piece->empty()) return piece;
    }
    RAG_ASSIGN_OR_RETURN(const std::string_view raw, read_raw());
    if (!std::exchange(begun_, true) && raw.starts_with(kGzipMark)) inflater_.emplace();
    if (!inflater_.has_value()) return raw;
    if (raw.empty()) {
      if (!inflater_->at_end()) return absl::InvalidArgumentError("is truncated gzip");
      return raw;
    }
    inflater_->feed(raw);
  }
}

absl::StatusOr<std::string> InputFile::read_all(size_t max_bytes) {
  std::string bytes;
  while (true) {
    RAG_ASSIGN_OR_RETURN(const std::string_view piece, read());
    if (piece.empty()) return bytes;
    if (bytes.size() + piece.size() > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("is longer than ", max_bytes, " bytes"));
    }
    bytes += piece;
  }
}

}  // namespace ragcache
