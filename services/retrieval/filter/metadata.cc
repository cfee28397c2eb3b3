#include "services/retrieval/filter/metadata.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

using nlohmann::json;

// Doubles hold every whole number up to here.
constexpr int64_t kExactIntegerMax = int64_t{1} << 53;

absl::Status refuse(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(str_cat("metadata.", field, ": ", what));
}

absl::StatusOr<MetadataValue> read_value(const std::string& field, const json& value) {
  switch (value.type()) {
    case json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      if (text.size() > MetadataLimits::kTextBytes) {
        return refuse(field, str_cat(text.size(), " bytes, at most ", MetadataLimits::kTextBytes));
      }
      return text;
    }
    case json::value_t::boolean:
      return value.get<bool>();
    case json::value_t::number_float:
      return value.get<double>();
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: {
      const bool is_exact = value.is_number_unsigned()
                                ? value.get<uint64_t>() <= uint64_t{kExactIntegerMax}
                                : value.get<int64_t>() >= -kExactIntegerMax;
      if (!is_exact) {
        return refuse(field, "a whole number beyond 2^53, which is not kept exactly; send a text");
      }
      return value.get<double>();
    }
    default:
      return refuse(field, "must be a text, a number, a flag or a list of them");
  }
}

}  // namespace

absl::StatusOr<Metadata> parse_metadata(std::string_view text) {
  Metadata metadata;
  if (text.empty()) return metadata;
  if (text.size() > MetadataLimits::kBytes) {
    return absl::InvalidArgumentError(
        str_cat("metadata: ", text.size(), " bytes, at most ", MetadataLimits::kBytes));
  }
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("metadata: must be a JSON object in valid UTF-8");
  }
  if (object.size() > MetadataLimits::kFields) {
    return absl::InvalidArgumentError(
        str_cat("metadata: ", object.size(), " fields, at most ", MetadataLimits::kFields));
  }
  for (const auto& [name, value] : object.items()) {
    if (name.empty() || name.size() > MetadataLimits::kNameBytes) {
      return absl::InvalidArgumentError(str_cat("metadata: a field's name has ", name.size(),
                                                " bytes, must be 1..", MetadataLimits::kNameBytes));
    }
    MetadataField field{.name = name};
    if (!value.is_array()) {
      RAG_ASSIGN_OR_RETURN(field.values.emplace_back(), read_value(name, value));
    } else if (value.size() > MetadataLimits::kListValues) {
      return refuse(name, str_cat(value.size(), " values, at most ", MetadataLimits::kListValues));
    } else {
      for (size_t i = 0; i < value.size(); ++i) {
        RAG_ASSIGN_OR_RETURN(field.values.emplace_back(),
                             read_value(str_cat(name, "[", i, "]"), value[i]));
      }
    }
    if (!field.values.empty()) metadata.push_back(std::move(field));
  }
  std::ranges::sort(metadata, {}, &MetadataField::name);
  return metadata;
}

std::string metadata_json(const Metadata& metadata) {
  if (metadata.empty()) return "";
  json object = json::object();
  for (const MetadataField& field : metadata) {
    json values = json::array();
    for (const MetadataValue& value : field.values) {
      std::visit([&](const auto& plain) { values.push_back(plain); }, value);
    }
    object[field.name] = field.values.size() == 1 ? std::move(values[0]) : std::move(values);
  }
  return object.dump();
}

}  // namespace ragcache::retrieval
