#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/http/message.h"

// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. The HTTP status comes
// from common/http/error.h, type and code from there on.
namespace ragcache::gateway {

// INVALID_ARGUMENT about one parameter; `message` names the bound. `code` as OpenAI's.
absl::Status invalid_field(std::string_view param, std::string_view message,
                           std::string_view code = "invalid_value");

// Attaches OpenAI's `param` and `code` to a status.
absl::Status with_details(absl::Status status, std::string_view param, std::string_view code);

// The object under "error".
nlohmann::ordered_json error_json(const absl::Status& status);

http::Response error_response(const absl::Status& status);

}  // namespace ragcache::gateway
