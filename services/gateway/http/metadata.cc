#include "services/gateway/http/metadata.h"

#include <cmath>
#include <cstdint>

namespace ragcache::gateway {
namespace {

OutJson value_json(const types::v1::Value& value) {
  switch (value.kind_case()) {
    case types::v1::Value::kText:
      return value.text();
    case types::v1::Value::kFlag:
      return value.flag();
    case types::v1::Value::kNumber: {
      // Whole numbers are printed as they were given: 7, not 7.0.
      const double number = value.number();
      const bool whole = std::abs(number) < 9e15 && number == std::floor(number);
      return whole ? OutJson(static_cast<int64_t>(number)) : OutJson(number);
    }
    default:
      return nullptr;
  }
}

}  // namespace

OutJson metadata_json(const google::protobuf::RepeatedPtrField<types::v1::MetadataField>& fields) {
  OutJson metadata = OutJson::object();
  for (const types::v1::MetadataField& field : fields) {
    OutJson values = OutJson::array();
    for (const types::v1::Value& value : field.values()) values.push_back(value_json(value));
    metadata[field.name()] = values.size() == 1 ? values[0] : std::move(values);
  }
  return metadata;
}

}  // namespace ragcache::gateway
