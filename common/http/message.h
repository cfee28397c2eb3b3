#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

// Plain values of HTTP messages, for server and client.
namespace ragcache::http {

bool equals_ignore_case(std::string_view a, std::string_view b);

// Header fields in order. Names compare without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // The first field of that name, or nothing.
  const std::string* find(std::string_view name) const;
  std::string_view get(std::string_view name) const;

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

using Parameters = std::vector<std::pair<std::string, std::string>>;

// The value of `name`, or nothing.
const std::string* find_parameter(const Parameters& parameters, std::string_view name);

// A request without its body.
struct Request {
  std::string id;      // the client's x-request-id if it is well formed, else a new one
  std::string method;  // as sent, e.g. "GET"
  std::string path;    // not yet percent-decoded
  Parameters query;    // decoded
  Headers headers;
  std::string route;       // pattern of the matched route; empty if there is none
  Parameters path_values;  // decoded values of the pattern's {names}
};

struct Response {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

struct HostPort {
  std::string host;
  uint16_t port;
};

// "host:port", the host of an IPv6 address in brackets.
absl::StatusOr<HostPort> parse_host_port(std::string_view text);

// The pieces of `text` between separators: one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator);

// Decodes %XX. InvalidArgument on a malformed escape.
absl::StatusOr<std::string> percent_decode(std::string_view text);

// Encodes every byte but RFC 3986's unreserved ones.
std::string percent_encode(std::string_view text);

// Splits a request target (origin or absolute form) into `request`'s path and query.
absl::Status parse_target(std::string_view target, Request& request);

// Whether a client's request id may be logged and echoed: 1 to 128 of [A-Za-z0-9._:-].
bool is_valid_request_id(std::string_view id);

// Whether `value` is a trace parent as W3C's Trace Context defines it.
bool is_valid_trace_parent(std::string_view value);

}  // namespace ragcache::http
