#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/http/exchange.h"
#include "services/gateway/request/json.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// One HTTP request on its way through a handler, on its connection's strand.
struct Call {
  const http::Request& request() const { return exchange.request(); }
  const Config& config() const { return services.config; }

  Services& services;
  http::Exchange& exchange;
  std::string tenant;
  TimePoint deadline = TimePoint::max();  // the client's, if it set one
};

// Answers, or returns what is wrong: then the caller answers, unless the answer has begun.
using Handle = boost::asio::awaitable<absl::Status> (*)(Call&);

// The absolute end that X-Request-Timeout-Ms asks for.
absl::StatusOr<TimePoint> deadline_of(const http::Request& request, TimePoint arrival,
                                      int64_t max_timeout_ms);

// The client's trace parent (W3C Trace Context), empty if it is missing or malformed.
std::string_view trace_parent_of(const http::Request& request);

// 415 unless the body's Content-Type is one of `types`.
absl::Status check_content_type(const http::Request& request,
                                std::initializer_list<std::string_view> types);

// The corpus that `?corpus=` names, empty if none.
absl::StatusOr<std::string> corpus_parameter(const http::Request& request);

// The body, of at most max_body_bytes, as JSON.
boost::asio::awaitable<absl::StatusOr<nlohmann::json>> read_json(Call& call);

// Both answer and return OK.
boost::asio::awaitable<absl::Status> respond_json(Call& call, OutJson value);
boost::asio::awaitable<absl::Status> respond_json(Call& call, OutJson value, unsigned status);

double to_ms(uint64_t us);

}  // namespace ragcache::gateway
