#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/http/message.h"

// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. The HTTP status comes
// from common/http/error.h, param and code from request/field_error.h; of an error from behind,
// param is the field that its message names.
namespace ragcache::gateway {

// The object under "error".
nlohmann::ordered_json error_json(const absl::Status& status);

http::Response error_response(const absl::Status& status);

}  // namespace ragcache::gateway
