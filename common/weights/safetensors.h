#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/mapped_file.h"

namespace ragcache {

enum class SafetensorsType { kF32, kF16, kBf16 };

// One tensor, pointing into the mapped file; row-major, dimensions outermost first.
struct SafetensorsTensor {
  SafetensorsType type;
  std::vector<uint64_t> shape;
  std::span<const uint8_t> data;

  uint64_t element_count() const;
};

// A safetensors file, mapped read-only. Immutable, so any thread may read it. The header is
// checked against the file's size before use: a truncated or hostile file gives INVALID_ARGUMENT
// that names the field. Nothing in the file aligns its tensors: copy out of `data`, do not cast.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> open(const std::string& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  // NOT_FOUND if there is none of that name, INVALID_ARGUMENT if its elements are of a type that
  // this project does not read.
  absl::StatusOr<const SafetensorsTensor*> tensor(std::string_view name) const;
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }
  // Of all tensors, also those of types that this project does not read; in order.
  std::vector<std::string> names() const;
  std::span<const uint8_t> bytes() const { return file_.bytes(); }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile(std::string path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status parse();

  // Constant after open().
  std::string path_;
  MappedFile file_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unread_types_;  // of the tensors left out
};

}  // namespace ragcache
