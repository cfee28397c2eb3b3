#include "services/gateway/http/openai_error.h"

#include <optional>
#include <string>

#include "common/http/error.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/json.h"

namespace ragcache::gateway {
namespace {

constexpr int kRetryAfterSeconds = 1;

nlohmann::ordered_json text_or_null(const std::optional<std::string>& text) {
  if (!text) return nullptr;
  return *text;
}

std::string_view type_of(unsigned http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

// OpenAI gives errors without a parameter a code of their own.
nlohmann::ordered_json default_code(unsigned http_status) {
  switch (http_status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 413:
      return "request_too_large";
    case 415:
      return "unsupported_media_type";
    case 429:
      return "rate_limit_exceeded";
    case 503:
      return "unavailable";
    case 504:
      return "timeout";
    default:
      return nullptr;
  }
}

// What an INVALID_ARGUMENT's message begins with, "field: …". Of the errors of the services behind
// gRPC carries code and message alone.
std::optional<std::string> named_field(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return std::nullopt;
  const std::string message(status.message());
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  if (end == std::string::npos || end == 0 || message.compare(end, 2, ": ") != 0) {
    return std::nullopt;
  }
  return message.substr(0, end);
}

}  // namespace

nlohmann::ordered_json error_json(const absl::Status& status) {
  const unsigned http_status = http::http_status(status);
  nlohmann::ordered_json code = text_or_null(code_of(status));
  if (code.is_null()) code = default_code(http_status);
  std::optional<std::string> param = param_of(status);
  if (!param) param = named_field(status);
  return {{"message", std::string(status.message())},
          {"type", type_of(http_status)},
          {"param", text_or_null(param)},
          {"code", std::move(code)}};
}

http::Response error_response(const absl::Status& status) {
  http::Response response;
  response.status = http::http_status(status);
  response.body = dump_json({{"error", error_json(status)}});
  if (response.status == 429 || response.status == 503) {
    response.headers.add("Retry-After", std::to_string(kRetryAfterSeconds));
  }
  if (response.status == 401) response.headers.add("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace ragcache::gateway
