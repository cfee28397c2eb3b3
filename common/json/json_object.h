#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ragcache {

// A JSON object of a file, for reading the fields that a program knows. Its getters are those of
// GgufFile: NOT_FOUND if the field is missing or null, INVALID_ARGUMENT if it has another type;
// the message names the field by its place in the file. Immutable, cheap to copy.
class JsonObject {
 public:
  static constexpr uint64_t kFileBytesMax = 256 << 20;

  // INVALID_ARGUMENT if the file is larger than kFileBytesMax or holds no JSON object.
  static absl::StatusOr<JsonObject> open(const std::string& path);

  absl::StatusOr<uint64_t> get_uint(std::string_view field) const;
  absl::StatusOr<double> get_float(std::string_view field) const;  // integers too
  absl::StatusOr<bool> get_bool(std::string_view field) const;
  absl::StatusOr<std::string> get_string(std::string_view field) const;
  absl::StatusOr<JsonObject> get_object(std::string_view field) const;
  bool has(std::string_view field) const;  // and is not null

  // For what the getters do not know: lists, values of several types.
  const nlohmann::json& json() const { return *value_; }
  const std::string& path() const { return *path_; }

 private:
  JsonObject(std::shared_ptr<const nlohmann::json> value, std::shared_ptr<const std::string> path,
             std::string place)
      : value_(std::move(value)), path_(std::move(path)), place_(std::move(place)) {}

  const nlohmann::json* find(std::string_view field) const;
  absl::Status missing(std::string_view field) const;
  absl::Status wrong_type(std::string_view field, std::string_view type) const;

  std::shared_ptr<const nlohmann::json> value_;  // keeps the whole document alive
  std::shared_ptr<const std::string> path_;
  std::string place_;  // "" or "outer.inner."
};

// The value, or `absent` where there is none; other errors stay.
template <typename T>
absl::StatusOr<T> value_or(absl::StatusOr<T> value, T absent) {
  if (absl::IsNotFound(value.status())) return absent;
  return value;
}

}  // namespace ragcache
