#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Reading clients' JSON: every failure is a Status that names field and bound.
namespace ragcache::gateway {

// What is written keeps its order; what is read does not need one.
using OutJson = nlohmann::ordered_json;

// Deepest nesting of a request: the API itself needs five levels.
inline constexpr size_t kMaxJsonDepth = 32;

// One JSON value, all of `text`. INVALID_ARGUMENT tells where it goes wrong.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text);

// On one line; a string that is not UTF-8 gets replacement characters.
std::string dump_json(const OutJson& value);

// The number that prints as a float does: 0.9f is 0.9, not 0.8999999761581421.
double printed_float(float value);

// The fields of one object. `path` leads the names in messages: "messages[2].". A field that is
// null counts as missing. Remembers which fields were asked for.
class Fields {
 public:
  // REQUIRED: `object` outlives this.
  static absl::StatusOr<Fields> of(const nlohmann::json& object, std::string path,
                                   std::string_view name);

  // Null if missing.
  const nlohmann::json* find(std::string_view name) const;
  std::string path_of(std::string_view name) const;

  absl::StatusOr<std::optional<bool>> boolean(std::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> integer(
      std::string_view name, int64_t min = std::numeric_limits<int64_t>::min(),
      int64_t max = std::numeric_limits<int64_t>::max()) const;
  absl::StatusOr<std::optional<double>> number(std::string_view name) const;
  absl::StatusOr<std::optional<std::string>> text(
      std::string_view name, size_t min_bytes = 0,
      size_t max_bytes = std::numeric_limits<size_t>::max()) const;

  // Takes note of fields that are known and have no influence.
  void ignore(std::initializer_list<std::string_view> names) const;
  // Names the first field that nobody has asked for.
  absl::Status refuse_others() const;

 private:
  Fields(const nlohmann::json& object, std::string path)
      : object_(&object), path_(std::move(path)) {}

  const nlohmann::json* object_;
  std::string path_;
  mutable std::vector<std::string> asked_;
};

// "an object", "a number", …: what a message says that a value is.
std::string_view kind_of(const nlohmann::json& value);

}  // namespace ragcache::gateway
