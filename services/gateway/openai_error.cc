#include "services/gateway/openai_error.h"

#include "absl/strings/cord.h"
#include "common/http/error.h"
#include "common/strings.h"
#include "services/gateway/json.h"

namespace ragcache::gateway {
namespace {

constexpr char kParam[] = "ragcache/param";
constexpr char kCode[] = "ragcache/code";
constexpr int kRetryAfterSeconds = 1;

nlohmann::ordered_json payload(const absl::Status& status, const char* name) {
  const auto cord = status.GetPayload(name);
  if (!cord) return nullptr;
  return std::string(*cord);
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

}  // namespace

absl::Status with_details(absl::Status status, std::string_view param, std::string_view code) {
  if (!param.empty()) status.SetPayload(kParam, absl::Cord(std::string(param)));
  if (!code.empty()) status.SetPayload(kCode, absl::Cord(std::string(code)));
  return status;
}

absl::Status invalid_field(std::string_view param, std::string_view message,
                           std::string_view code) {
  return with_details(absl::InvalidArgumentError(str_cat(param, ": ", message)), param, code);
}

nlohmann::ordered_json error_json(const absl::Status& status) {
  const unsigned http_status = http::http_status(status);
  nlohmann::ordered_json code = payload(status, kCode);
  if (code.is_null()) code = default_code(http_status);
  return {{"message", std::string(status.message())},
          {"type", type_of(http_status)},
          {"param", payload(status, kParam)},
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
