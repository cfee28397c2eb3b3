#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/mapped_file.h"
#include "common/weights/tensor.h"

namespace ragcache {

using GgufArray = std::variant<std::vector<std::string>, std::vector<int64_t>, std::vector<double>>;
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray>;
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// A GGUF file, version 2 or 3, mapped read-only. Immutable, so any thread may read it. Every
// length and offset of the file is checked against its size before use: a truncated or hostile
// file gives INVALID_ARGUMENT that names the field, never a crash or an allocation it dictates.
class GgufFile {
 public:
  static absl::StatusOr<std::shared_ptr<const GgufFile>> open(const std::string& path);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // NOT_FOUND if the key is missing, INVALID_ARGUMENT if its value has another type or does not
  // fit. Unsigned and signed integers convert when in range.
  absl::StatusOr<uint64_t> get_uint(std::string_view key) const;
  absl::StatusOr<double> get_float(std::string_view key) const;
  absl::StatusOr<bool> get_bool(std::string_view key) const;
  absl::StatusOr<std::string> get_string(std::string_view key) const;
  absl::StatusOr<std::span<const std::string>> get_strings(std::string_view key) const;
  absl::StatusOr<std::span<const int64_t>> get_ints(std::string_view key) const;
  absl::StatusOr<std::span<const double>> get_floats(std::string_view key) const;

  // NOT_FOUND if there is none of that name.
  absl::StatusOr<const Tensor*> tensor(std::string_view name) const;
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::span<const uint8_t> bytes() const { return file_.bytes(); }
  const std::string& path() const { return path_; }

 private:
  GgufFile(std::string path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status parse();

  // Constant after open().
  std::string path_;
  MappedFile file_;
  GgufMetadata metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_by_name_;
};

}  // namespace ragcache
