#include "services/gateway/http/call.h"

#include <charconv>

#include "common/http/error.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/body.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {

using boost::asio::awaitable;

absl::StatusOr<TimePoint> deadline_of(const http::Request& request, TimePoint arrival,
                                      int64_t max_timeout_ms) {
  const std::string* text = request.headers.find("x-request-timeout-ms");
  if (text == nullptr) return TimePoint::max();
  int64_t timeout_ms = 0;
  const char* end = text->data() + text->size();
  const auto [rest, fault] = std::from_chars(text->data(), end, timeout_ms);
  if (fault != std::errc() || rest != end || timeout_ms < 1 || timeout_ms > max_timeout_ms) {
    return invalid_field("X-Request-Timeout-Ms", str_cat("must be 1 to ", max_timeout_ms));
  }
  return arrival + std::chrono::milliseconds(timeout_ms);
}

std::string_view trace_parent_of(const http::Request& request) {
  const std::string_view value = request.headers.get("traceparent");
  return http::is_valid_trace_parent(value) ? value : std::string_view();
}

absl::Status check_content_type(const http::Request& request,
                                std::initializer_list<std::string_view> types) {
  std::string_view type = request.headers.get("content-type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  std::string wanted;
  for (std::string_view known : types) {
    if (http::equals_ignore_case(type, known)) return absl::OkStatus();
    wanted += str_cat(wanted.empty() ? "" : " or ", known);
  }
  return http::error(
      415, str_cat("Content-Type: must be ", wanted, ", not `", type.substr(0, 100), "`"));
}

absl::StatusOr<std::string> corpus_parameter(const http::Request& request) {
  const std::string* corpus = http::find_parameter(request.query, "corpus");
  if (corpus == nullptr) return std::string();
  if (corpus->empty()) return invalid_field("corpus", "must not be empty");
  RAG_RETURN_IF_ERROR(check_corpus("corpus", *corpus));
  return *corpus;
}

awaitable<absl::StatusOr<nlohmann::json>> read_json(Call& call) {
  absl::Status type = check_content_type(call.request(), {"application/json"});
  if (!type.ok()) co_return type;
  Body body(call.exchange);
  absl::StatusOr<std::string> text =
      co_await body.read_all(call.config().limits.max_body_bytes, call.deadline);
  if (!text.ok()) co_return text.status();
  co_return parse_json(*text);
}

awaitable<absl::Status> respond_json(Call& call, OutJson value, unsigned status) {
  http::Response response;
  response.status = status;
  response.body = dump_json(value);
  co_await call.exchange.respond(std::move(response));
  co_return absl::OkStatus();
}

awaitable<absl::Status> respond_json(Call& call, OutJson value) {
  return respond_json(call, std::move(value), 200);
}

double to_ms(uint64_t us) { return static_cast<double>(us) / 1000; }

}  // namespace ragcache::gateway
