#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"

namespace ragcache::http {

struct ClientOptions {
  int64_t connect_timeout_ms = 5'000;
  // Without a byte in either direction; an answer may take long to compute.
  int64_t idle_timeout_ms = 600'000;
  size_t max_response_bytes = 64 << 20;  // of fetch()
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";
  Headers headers;
  std::string body;
  // If set, the body instead of `body`: called for the next piece until it gives an empty one.
  std::function<absl::StatusOr<std::string>()> body_source;
};

// A blocking HTTP/1.1 client: one connection a request, all work on the caller's thread. A request
// goes up while its answer comes down. An answer of any status is a success here; a Status tells
// that there was none. Not thread-safe.
class Client {
 public:
  // "http://host:port[/prefix]" or "host:port".
  static absl::StatusOr<Client> create(std::string_view url, ClientOptions options = {});

  // The whole answer.
  absl::StatusOr<Response> fetch(const ClientRequest& request);

  // The answer's head, after its body went to `on_bytes` piece by piece with that head. A non-OK
  // Status of `on_bytes` ends the exchange and is returned.
  using OnBytes = std::function<absl::Status(const Response& head, std::string_view bytes)>;
  absl::StatusOr<Response> stream(const ClientRequest& request, const OnBytes& on_bytes);

  const std::string& host() const { return host_; }
  const std::string& port() const { return port_; }
  const std::string& prefix() const { return prefix_; }  // of every target; "" or "/…"

 private:
  Client(std::string host, std::string port, std::string prefix, ClientOptions options);

  std::string host_;
  std::string port_;
  std::string prefix_;
  ClientOptions options_;
};

}  // namespace ragcache::http
