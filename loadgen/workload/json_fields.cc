#include "loadgen/workload/json_fields.h"

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache::loadgen {

using nlohmann::json;

absl::StatusOr<std::string> string_of(const json& object, const char* field) {
  auto it = object.find(field);
  if (it == object.end() || !it->is_string()) {
    return absl::InvalidArgumentError(str_cat(field, ": must be a string"));
  }
  return it->get<std::string>();
}

absl::StatusOr<uint64_t> uint_of(const json& object, const char* field, uint64_t min,
                                 uint64_t max) {
  auto it = object.find(field);
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() < min ||
      it->get<uint64_t>() > max) {
    return absl::InvalidArgumentError(
        str_cat(field, ": must be an integer from ", min, " to ", max));
  }
  return it->get<uint64_t>();
}

absl::StatusOr<const json*> list_of(const json& object, const char* field) {
  auto it = object.find(field);
  if (it == object.end() || !it->is_array()) {
    return absl::InvalidArgumentError(str_cat(field, ": must be a list"));
  }
  return &*it;
}

absl::StatusOr<std::vector<std::string>> strings_of(const json& object, const char* field) {
  RAG_ASSIGN_OR_RETURN(const json* list, list_of(object, field));
  std::vector<std::string> strings;
  for (const json& each : *list) {
    if (!each.is_string()) {
      return absl::InvalidArgumentError(str_cat(field, ": must be a list of strings"));
    }
    strings.push_back(each.get<std::string>());
  }
  return strings;
}

}  // namespace ragcache::loadgen
