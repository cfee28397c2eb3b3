#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"

namespace ragcache::http {

class Connection;

// One request and the way to answer it. Owned by the connection, alive while its handler runs; all
// calls come from the connection's strand (executor()), where the handler runs too.
//
// A handler answers once: by respond(), or by start_stream(), write()*, finish_stream(). A
// handler that returns without an answer has failed (500); a stream that is not finished is cut.
// A non-OK Status from a write means that the client is gone: give up what is being done.
class Exchange {
 public:
  static constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

  explicit Exchange(Connection& connection) : connection_(connection) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Request& request() const;
  std::chrono::steady_clock::time_point arrival() const;
  boost::asio::any_io_executor executor() const;

  // The whole body; fails with 413 if it is longer than the server's max_body_bytes, with 408 if it
  // takes longer than the server's whole_body_timeout_ms, and as DEADLINE_EXCEEDED if it has not
  // come by `deadline`.
  boost::asio::awaitable<absl::StatusOr<std::string>> read_body(
      std::chrono::steady_clock::time_point deadline = kNoDeadline);
  // The next bytes of the body as they come, whatever its length; empty at its end. The client is
  // held back while nothing is read. The view lives until the next call.
  boost::asio::awaitable<absl::StatusOr<std::string_view>> read_chunk();

  boost::asio::awaitable<absl::Status> respond(Response response);

  // `response.body` is ignored: the body follows by write(). A write returns when the bytes are
  // with the kernel, so that a slow client holds its handler back.
  boost::asio::awaitable<absl::Status> start_stream(Response response);
  boost::asio::awaitable<absl::Status> write(std::string bytes);
  boost::asio::awaitable<absl::Status> finish_stream();

  bool response_started() const;

  // Whether the client is known to be gone. Watched from the end of the request's body on, unless
  // the client has sent tens of kilobytes of further requests.
  bool disconnected() const;

  // While alive: `action` runs once, on the strand, when the client goes away or the server stops
  // for good; at once if that has happened already. It ends no guard.
  class DisconnectGuard {
   public:
    DisconnectGuard(Exchange& exchange, std::function<void()> action);
    ~DisconnectGuard();
    DisconnectGuard(const DisconnectGuard&) = delete;
    DisconnectGuard& operator=(const DisconnectGuard&) = delete;

   private:
    friend class Connection;
    Connection& connection_;
    const std::function<void()> action_;
  };

 private:
  Connection& connection_;
};

using Handler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace ragcache::http
