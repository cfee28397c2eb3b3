#include "common/json/json_object.h"

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"

namespace ragcache {

absl::StatusOr<JsonObject> JsonObject::open(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kFileBytesMax) {
    return absl::InvalidArgumentError(
        str_cat(path, " has ", file.bytes().size(), " bytes, more than ", kFileBytesMax));
  }
  auto value = std::make_shared<nlohmann::json>(nlohmann::json::parse(
      file.bytes().begin(), file.bytes().end(), nullptr, /*allow_exceptions=*/false));
  if (!value->is_object()) return absl::InvalidArgumentError(str_cat(path, " is no JSON object"));
  return JsonObject(std::move(value), std::make_shared<const std::string>(path), "");
}

const nlohmann::json* JsonObject::find(std::string_view field) const {
  const auto found = value_->find(field);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

absl::Status JsonObject::missing(std::string_view field) const {
  return absl::NotFoundError(str_cat(*path_, " has no ", place_, field));
}

absl::Status JsonObject::wrong_type(std::string_view field, std::string_view type) const {
  return absl::InvalidArgumentError(str_cat(*path_, ": ", place_, field, " is not ", type));
}

bool JsonObject::has(std::string_view field) const { return find(field) != nullptr; }

absl::StatusOr<uint64_t> JsonObject::get_uint(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return missing(field);
  if (!value->is_number_unsigned()) return wrong_type(field, "an unsigned integer");
  return value->get<uint64_t>();
}

absl::StatusOr<double> JsonObject::get_float(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return missing(field);
  if (!value->is_number()) return wrong_type(field, "a number");
  return value->get<double>();
}

absl::StatusOr<bool> JsonObject::get_bool(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return missing(field);
  if (!value->is_boolean()) return wrong_type(field, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonObject::get_string(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return missing(field);
  if (!value->is_string()) return wrong_type(field, "a string");
  return value->get<std::string>();
}

absl::StatusOr<JsonObject> JsonObject::get_object(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return missing(field);
  if (!value->is_object()) return wrong_type(field, "an object");
  return JsonObject(std::shared_ptr<const nlohmann::json>(value_, value), path_,
                    str_cat(place_, field, "."));
}

}  // namespace ragcache
