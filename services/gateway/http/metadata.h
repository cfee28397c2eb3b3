#pragma once

#include "google/protobuf/repeated_field.h"
#include "ragcache/types/v1/types.pb.h"
#include "services/gateway/request/json.h"

namespace ragcache::gateway {

// A document's metadata as the object it came as; a list of one value is that value.
OutJson metadata_json(const google::protobuf::RepeatedPtrField<types::v1::MetadataField>& fields);

}  // namespace ragcache::gateway
