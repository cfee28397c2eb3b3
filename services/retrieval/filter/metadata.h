#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

// What a client says of a document, beside its text: named texts, numbers and flags.
namespace ragcache::retrieval {

using MetadataValue = std::variant<std::string, double, bool>;

struct MetadataField {
  std::string name;
  std::vector<MetadataValue> values;  // one, or those of a list

  bool operator==(const MetadataField&) const = default;
};

using Metadata = std::vector<MetadataField>;  // names ascending by bytes, each once

struct MetadataLimits {
  static constexpr size_t kBytes = 16 << 10;  // of the JSON
  static constexpr size_t kFields = 64;
  static constexpr size_t kNameBytes = 256;
  static constexpr size_t kTextBytes = 4 << 10;
  static constexpr size_t kListValues = 256;
};

// Reads a JSON object of texts, numbers, flags and lists of them; nothing is an empty object, and a
// field with an empty list is none. INVALID_ARGUMENT names the field and the bound, beginning with
// "metadata". A whole number of up to 64 bits that a double does not hold
// exactly is refused.
absl::StatusOr<Metadata> parse_metadata(std::string_view json);

// A JSON object that parse_metadata() reads back; equal for equal metadata, empty if there are
// none.
std::string metadata_json(const Metadata& metadata);

}  // namespace ragcache::retrieval
