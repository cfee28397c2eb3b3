#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/http/event.h"
#include "common/http/exchange.h"
#include "common/http/message.h"
#include "common/http/server.h"

namespace ragcache::http {

// One client's connection: reads a request, runs its handler, writes the answer, and again. Owned
// by its coroutine and the server's list; lives on its socket's strand, where every member runs.
//
// While a handler computes and the request is read to its end, one wait for input stays pending on
// the socket: it ends when the client goes away, or with bytes of its next requests, which are kept
// up to a limit. The same wait serves between requests, when a connection holds no buffers.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `config` and `router` outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, const ServerConfig& config, const Router& router);

  boost::asio::awaitable<void> run();

  boost::asio::any_io_executor executor() { return socket_.get_executor(); }
  // Ends the connection after the request it is in, at once if it is in none.
  void finish_soon();
  // Tells the handler that its client is gone, and closes.
  void abort();

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;
  using Bytes = std::vector<boost::asio::const_buffer>;

  // Closes or cancels the socket's operations when time is up.
  class Deadline {
   public:
    explicit Deadline(boost::asio::any_io_executor executor) : timer_(std::move(executor)) {}
    void arm(int64_t timeout_ms, std::weak_ptr<Connection> owner, void (Connection::*expired)());
    void disarm() {
      timer_.cancel();
      ++generation_;
    }

   private:
    boost::asio::steady_timer timer_;
    uint64_t generation_ = 0;
  };

  boost::asio::awaitable<bool> wait_for_request();
  boost::asio::awaitable<absl::Status> read_head();
  absl::Status check_head();
  boost::asio::awaitable<void> serve(bool& keep_open);
  boost::asio::awaitable<void> dispatch(Exchange& exchange);
  boost::asio::awaitable<void> refuse(absl::Status status);
  boost::asio::awaitable<void> linger();

  boost::asio::awaitable<absl::StatusOr<std::string_view>> read_chunk(
      std::chrono::steady_clock::time_point deadline);
  boost::asio::awaitable<absl::Status> respond(Response response);
  boost::asio::awaitable<absl::Status> start_stream(Response response);
  boost::asio::awaitable<absl::Status> write(std::string bytes);
  boost::asio::awaitable<absl::Status> finish_stream();
  boost::asio::awaitable<absl::Status> send(Bytes bytes);

  std::string head_of(const Response& response, std::optional<size_t> content_length);
  void watch();
  boost::asio::awaitable<void> end_watch();
  void take_input();
  void release_memory();
  void client_gone();
  void read_expired();
  void write_expired();
  void close();

  boost::asio::ip::tcp::socket socket_;
  const ServerConfig& config_;
  const Router& router_;

  boost::beast::flat_buffer buffer_;
  Event read_done_;
  Deadline read_deadline_;
  Deadline write_deadline_;
  bool read_pending_ = false;
  bool input_ended_ = false;  // the client sends no more, or the socket failed
  bool read_timed_out_ = false;
  bool finishing_ = false;

  // Of the current request.
  std::optional<Parser> parser_;
  Request request_;
  std::chrono::steady_clock::time_point arrival_;
  std::vector<char> chunk_;
  std::vector<Exchange::DisconnectGuard*> guards_;
  enum class Answer { kNone, kStreaming, kDone } answer_ = Answer::kNone;
  unsigned status_ = 0;
  uint64_t response_bytes_ = 0;
  bool in_request_ = false;
  bool continue_owed_ = false;  // the client waits for "100 Continue"
  bool body_failed_ = false;
  bool disconnected_ = false;
  bool chunked_ = false;
};

}  // namespace ragcache::http
