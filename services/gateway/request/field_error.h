#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// What is wrong with a request, as a Status: the message names field and bound; OpenAI's `param`
// and `code` travel as payloads.
namespace ragcache::gateway {

// INVALID_ARGUMENT about one parameter; `message` names the bound. `code` as OpenAI's.
absl::Status invalid_field(std::string_view param, std::string_view message,
                           std::string_view code = "invalid_value");
absl::Status missing_field(std::string_view param);
absl::Status unsupported_field(std::string_view param, std::string_view only);

// Whether `value` is min to max bytes long.
absl::Status check_bytes(std::string_view param, std::string_view value, size_t min, size_t max);

// Attaches OpenAI's `param` and `code` to a status.
absl::Status with_details(absl::Status status, std::string_view param, std::string_view code);

// The same status with `text` before or after its message.
absl::Status with_prefix(const absl::Status& status, std::string_view text);
absl::Status with_suffix(const absl::Status& status, std::string_view text);

std::optional<std::string> param_of(const absl::Status& status);
std::optional<std::string> code_of(const absl::Status& status);

}  // namespace ragcache::gateway
