#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "common/http/router.h"

namespace ragcache::http {

struct Limits {
  size_t max_header_bytes = 64 << 10;
  size_t max_body_bytes = 16 << 20;  // of Exchange::read_body
  size_t max_connections = 8192;
  int64_t header_timeout_ms = 10'000;       // from a request's first byte to its header's end
  int64_t body_timeout_ms = 30'000;         // between two pieces of a body
  int64_t whole_body_timeout_ms = 300'000;  // from a request's first byte, of Exchange::read_body
  int64_t write_timeout_ms = 30'000;        // without the client taking any more of its answer
  int64_t idle_timeout_ms = 75'000;         // between two requests
};

// What became of one request.
struct RequestRecord {
  const Request& request;
  unsigned status;  // 499 if the client went away before it had its answer
  uint64_t response_bytes;
  std::chrono::steady_clock::duration duration;
};

// What the server tells its owner; every member is REQUIRED and runs on any of its threads.
struct Observer {
  std::function<void(const RequestRecord&)> request_done = [](const RequestRecord&) {};
  std::function<void(int change)> connections = [](int) {};
  std::function<void(size_t bytes)> streamed = [](size_t) {};
  std::function<void(std::string_view what)> fault = [](std::string_view) {};
};

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: one the system chooses
  unsigned threads = 1;
  Limits limits;
  // Makes the body of the server's own error answers (404, 408, 431 …).
  std::function<Response(const absl::Status&)> format_error;
  Observer observer;
};

// An HTTP/1.1 server: keep-alive, pipelining (answered one after the other), chunked streams.
// Every connection is a coroutine on a strand of a few threads. Owner: the service's App.
class Server {
 public:
  // REQUIRED: config.format_error.
  static absl::StatusOr<std::unique_ptr<Server>> start(ServerConfig config, Router router);
  ~Server();

  // Accepts no more, closes idle connections, lets open requests finish for `grace`, then
  // disconnects them and waits for their handlers. Idempotent.
  void stop(std::chrono::milliseconds grace);

  const std::string& address() const { return address_; }  // host:port
  uint16_t port() const { return port_; }

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::string address_;
  uint16_t port_ = 0;
};

}  // namespace ragcache::http
