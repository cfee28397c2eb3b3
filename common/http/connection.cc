#include "common/http/connection.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <exception>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/http/error.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kWatchBytes = 4 << 10;
// Requests that come while one is being answered are kept up to this size. Beyond it the client is
// held back, and that it goes away is seen only at the end of the request.
constexpr size_t kMaxWaitingBytes = 64 << 10;
// After an answer to a request that was not read to its end, so much more is read and thrown away
// before the socket closes: unread bytes would make the system drop the answer on its way.
constexpr size_t kLingerBytes = 4 << 20;
constexpr int64_t kLingerTimeoutMs = 2'000;

absl::Status gone() { return absl::CancelledError("the client closed the connection"); }

absl::Status late_body() {
  return absl::DeadlineExceededError("the request's time was up before its body had come");
}

absl::Status parse_failure(const error_code& code, size_t max_header_bytes) {
  if (code == beast_http::error::header_limit || code == beast_http::error::buffer_overflow) {
    return error(431, str_cat("the request's header is longer than ", max_header_bytes, " bytes"));
  }
  if (code == beast_http::error::bad_version) return error(505, "only HTTP/1.0 and HTTP/1.1");
  return error(400, str_cat("malformed HTTP request: ", code.message()));
}

// Rounded up, so that it is over when a timer of so long has expired.
int64_t ms_until(std::chrono::steady_clock::time_point end) {
  return std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
      .count();
}

bool is_parse_error(const error_code& code) {
  return code.category() == beast_http::make_error_code(beast_http::error::bad_method).category() &&
         code != beast_http::error::end_of_stream && code != beast_http::error::partial_message;
}

}  // namespace

void Connection::Deadline::arm(int64_t timeout_ms, std::weak_ptr<Connection> owner,
                               void (Connection::*expired)()) {
  const uint64_t generation = ++generation_;
  timer_.expires_after(std::chrono::milliseconds(timeout_ms));
  timer_.async_wait([this, generation, owner = std::move(owner), expired](const error_code& code) {
    const std::shared_ptr<Connection> connection = owner.lock();
    // A timer that had fired before disarm() still calls: the generation tells.
    if (connection == nullptr || code || generation != generation_) return;
    (connection.get()->*expired)();
  });
}

Connection::Connection(asio::ip::tcp::socket socket, const ServerConfig& config,
                       const Router& router)
    : socket_(std::move(socket)),
      config_(config),
      router_(router),
      buffer_(config.limits.max_header_bytes + kChunkBytes),
      read_done_(socket_.get_executor()),
      read_deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()) {}

asio::awaitable<void> Connection::run() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);  // for take_input
  bool keep_open = true;
  while (keep_open && !finishing_) {
    const bool has_request = co_await wait_for_request();
    if (!has_request) break;
    co_await serve(keep_open);
    release_memory();
  }
  close();
  while (read_pending_) co_await read_done_.wait();
}

// True when the first byte of a request is in the buffer.
asio::awaitable<bool> Connection::wait_for_request() {
  read_timed_out_ = false;
  read_deadline_.arm(config_.limits.idle_timeout_ms, weak_from_this(), &Connection::read_expired);
  while (true) {
    // Empty lines ahead of a request line are to be ignored (RFC 9112, section 2.2).
    while (buffer_.size() > 0) {
      const char first = *static_cast<const char*>(buffer_.data().data());
      if (first != '\r' && first != '\n') break;
      buffer_.consume(1);
    }
    if (buffer_.size() > 0 || input_ended_ || finishing_ || read_timed_out_) break;
    watch();
    co_await read_done_.wait();
  }
  read_deadline_.disarm();
  co_await end_watch();
  co_return buffer_.size() > 0 && !input_ended_ && !finishing_;
}

void Connection::watch() {
  if (read_pending_ || input_ended_ || buffer_.size() + kWatchBytes > kMaxWaitingBytes) return;
  read_pending_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const error_code& code) {
                       self->read_pending_ = false;
                       if (!code) {
                         self->take_input();
                       } else if (code != asio::error::operation_aborted) {
                         self->input_ended_ = true;
                       }
                       if (self->in_request_ && self->input_ended_) self->client_gone();
                       if (self->in_request_ && !code) self->watch();
                       self->read_done_.set();
                     });
}

// Before the connection reads by itself: both would take from the socket.
asio::awaitable<void> Connection::end_watch() {
  error_code ignored;
  if (read_pending_) socket_.cancel(ignored);
  while (read_pending_) co_await read_done_.wait();
}

// Takes what has come, without waiting.
void Connection::take_input() {
  error_code code;
  buffer_.commit(socket_.read_some(buffer_.prepare(kWatchBytes), code));
  if (code && code != asio::error::would_block) input_ended_ = true;
}

// Thousands of clients may stay connected and ask nothing.
void Connection::release_memory() {
  parser_.reset();
  request_ = {};
  chunk_ = std::vector<char>();  // assigned braces would keep its memory
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
}

asio::awaitable<void> Connection::serve(bool& keep_open) {
  request_ = {};
  answer_ = Answer::kNone;
  status_ = 0;
  response_bytes_ = 0;
  continue_owed_ = body_failed_ = disconnected_ = chunked_ = false;
  in_request_ = true;
  arrival_ = std::chrono::steady_clock::now();
  parser_.emplace();
  absl::Status head = co_await read_head();
  if (absl::IsCancelled(head)) {
    in_request_ = false;
    keep_open = false;
    co_return;
  }
  if (head.ok()) head = check_head();
  if (!head.ok()) {
    body_failed_ = true;
    co_await refuse(std::move(head));
  } else {
    if (parser_->is_done()) watch();
    Exchange exchange(*this);
    std::string failure;
    try {
      co_await dispatch(exchange);
    } catch (const std::exception& exception) {
      failure = exception.what();
    }
    RAG_CHECK(guards_.empty());
    if (failure.empty() && answer_ == Answer::kNone && !disconnected_) {
      failure = "the handler returned without an answer";
    }
    if (!failure.empty()) {
      config_.observer.fault(str_cat(request_.method, " ", request_.route, ": ", failure));
      co_await refuse(error(500, "internal error"));
    }
  }
  in_request_ = false;
  const bool body_unread = body_failed_ || !parser_->is_done();
  keep_open = answer_ == Answer::kDone && !disconnected_ && !body_unread && parser_->keep_alive();
  const bool answered = answer_ == Answer::kDone || !disconnected_;
  config_.observer.request_done({.request = request_,
                                 .status = answered ? status_ : 499,
                                 .response_bytes = response_bytes_,
                                 .duration = std::chrono::steady_clock::now() - arrival_});
  if (answer_ == Answer::kDone && body_unread) co_await linger();
}

asio::awaitable<absl::Status> Connection::read_head() {
  parser_->header_limit(static_cast<uint32_t>(config_.limits.max_header_bytes));
  parser_->body_limit(boost::none);
  read_timed_out_ = false;
  read_deadline_.arm(config_.limits.header_timeout_ms, weak_from_this(), &Connection::read_expired);
  error_code code;
  co_await beast_http::async_read_header(socket_, buffer_, *parser_,
                                         asio::redirect_error(asio::use_awaitable, code));
  read_deadline_.disarm();
  request_.id = new_request_id();
  if (!code) co_return absl::OkStatus();
  if (read_timed_out_) {
    co_return error(408, str_cat("the request's header did not come within ",
                                 config_.limits.header_timeout_ms, " ms"));
  }
  if (is_parse_error(code)) co_return parse_failure(code, config_.limits.max_header_bytes);
  co_return gone();
}

// Fills request_ from the parsed header and refuses what the server does not do.
absl::Status Connection::check_head() {
  const auto& message = parser_->get();
  request_.method = std::string(message.method_string());
  for (const auto& field : message) {
    request_.headers.add(std::string(field.name_string()), std::string(field.value()));
  }
  if (const std::string* id = request_.headers.find("x-request-id");
      id != nullptr && is_valid_request_id(*id)) {
    request_.id = *id;
  }
  RAG_RETURN_IF_ERROR(parse_target(std::string_view(message.target()), request_));
  if (message.version() != 10 && message.version() != 11) {
    return error(505, "only HTTP/1.0 and HTTP/1.1");
  }
  if (message.version() == 11 && request_.headers.find("host") == nullptr) {
    return error(400, "an HTTP/1.1 request needs a Host header");
  }
  const std::string* coding = request_.headers.find("transfer-encoding");
  if (coding != nullptr && !equals_ignore_case(*coding, "chunked")) {
    return error(501, "Transfer-Encoding: only chunked");
  }
  if (const std::string* expect = request_.headers.find("expect")) {
    if (!equals_ignore_case(*expect, "100-continue")) {
      return error(417, "Expect: only 100-continue");
    }
    continue_owed_ = message.version() == 11 && !parser_->is_done();
  }
  return absl::OkStatus();
}

asio::awaitable<void> Connection::dispatch(Exchange& exchange) {
  absl::StatusOr<Router::Match> match = router_.match(request_);
  if (!match.ok()) {
    co_await refuse(match.status());
  } else if (match->handler != nullptr) {
    co_await (*match->handler)(exchange);
  } else if (match->allow.empty()) {
    co_await refuse(error(404, str_cat("unknown path ", request_.path.substr(0, 200))));
  } else {
    absl::Status status = error(405, str_cat(request_.method, " is not allowed on ", request_.route,
                                             "; allowed: ", match->allow));
    Response response = config_.format_error(status);
    response.headers.add("Allow", match->allow);
    co_await respond(std::move(response));
  }
}

asio::awaitable<void> Connection::refuse(absl::Status status) {
  if (answer_ != Answer::kNone) {  // Too late for a status: cut the stream, so that it shows.
    client_gone();
    co_return;
  }
  Response response = config_.format_error(status);
  co_await respond(std::move(response));
}

asio::awaitable<absl::StatusOr<std::string_view>> Connection::read_chunk(
    std::chrono::steady_clock::time_point deadline) {
  if (body_failed_) co_return gone();
  if (parser_->is_done()) co_return std::string_view();
  if (std::exchange(continue_owed_, false)) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    Bytes bytes = {asio::buffer(kContinue)};
    absl::Status sent = co_await send(std::move(bytes));
    if (!sent.ok()) co_return sent;
  }
  chunk_.resize(kChunkBytes);
  auto& body = parser_->get().body();
  size_t filled = 0;
  while (filled == 0 && !parser_->is_done()) {
    const int64_t left_ms = ms_until(deadline);
    if (left_ms <= 0) {
      body_failed_ = true;
      co_return late_body();
    }
    body.data = chunk_.data();
    body.size = chunk_.size();
    read_timed_out_ = false;
    read_deadline_.arm(std::min(config_.limits.body_timeout_ms, left_ms), weak_from_this(),
                       &Connection::read_expired);
    error_code code;
    co_await beast_http::async_read_some(socket_, buffer_, *parser_,
                                         asio::redirect_error(asio::use_awaitable, code));
    read_deadline_.disarm();
    filled = chunk_.size() - body.size;
    if (!code || code == beast_http::error::need_buffer) continue;
    body_failed_ = true;
    if (read_timed_out_ && ms_until(deadline) <= 0) co_return late_body();
    if (read_timed_out_) {
      co_return error(408, str_cat("no byte of the request's body came for ",
                                   config_.limits.body_timeout_ms, " ms"));
    }
    if (is_parse_error(code)) {
      co_return parse_failure(code, config_.limits.max_header_bytes);
    }
    client_gone();
    co_return gone();
  }
  if (parser_->is_done()) watch();
  co_return std::string_view(chunk_.data(), filled);
}

std::string Connection::head_of(const Response& response, std::optional<size_t> content_length) {
  status_ = response.status;
  const bool may_stay = parser_->is_header_done() && parser_->keep_alive() && parser_->is_done() &&
                        !body_failed_ && !finishing_ && (content_length.has_value() || chunked_);
  if (!may_stay) finishing_ = true;
  std::string head = str_cat(
      "HTTP/1.1 ", response.status, " ", reason_phrase(response.status),
      "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
      "\r\nx-request-id: ", request_.id, "\r\n");
  if (!response.content_type.empty()) {
    head += str_cat("Content-Type: ", response.content_type, "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    head += str_cat(name, ": ", value, "\r\n");
  }
  if (content_length.has_value()) {
    head += str_cat("Content-Length: ", *content_length, "\r\n");
  } else if (chunked_) {
    head.append("Transfer-Encoding: chunked\r\n");
  }
  const bool old_client = parser_->is_header_done() && parser_->get().version() == 10;
  if (!may_stay) {
    head.append("Connection: close\r\n");
  } else if (old_client) {
    head.append("Connection: keep-alive\r\n");
  }
  head.append("\r\n");
  return head;
}

asio::awaitable<absl::Status> Connection::respond(Response response) {
  RAG_CHECK(answer_ == Answer::kNone);
  const std::string head = head_of(response, response.body.size());
  Bytes bytes = {asio::buffer(head)};
  if (request_.method != "HEAD") bytes.push_back(asio::buffer(response.body));
  answer_ = Answer::kStreaming;
  absl::Status sent = co_await send(std::move(bytes));
  if (sent.ok()) answer_ = Answer::kDone;
  co_return sent;
}

asio::awaitable<absl::Status> Connection::start_stream(Response response) {
  RAG_CHECK(answer_ == Answer::kNone);
  chunked_ = parser_->get().version() == 11;
  const std::string head = head_of(response, std::nullopt);
  answer_ = Answer::kStreaming;
  Bytes bytes = {asio::buffer(head)};
  absl::Status sent = co_await send(std::move(bytes));
  co_return sent;
}

asio::awaitable<absl::Status> Connection::write(std::string bytes) {
  RAG_CHECK(answer_ == Answer::kStreaming);
  // An empty chunk would end the stream.
  if (bytes.empty() || request_.method == "HEAD") {
    co_return disconnected_ ? gone() : absl::OkStatus();
  }
  const std::string size = absl::StrFormat("%x\r\n", bytes.size());
  Bytes pieces;
  if (chunked_) pieces.push_back(asio::buffer(size));
  pieces.push_back(asio::buffer(bytes));
  if (chunked_) pieces.push_back(asio::buffer(std::string_view("\r\n")));
  config_.observer.streamed(bytes.size());
  absl::Status sent = co_await send(std::move(pieces));
  co_return sent;
}

asio::awaitable<absl::Status> Connection::finish_stream() {
  RAG_CHECK(answer_ == Answer::kStreaming);
  Bytes last;
  if (chunked_ && request_.method != "HEAD") {
    last.push_back(asio::buffer(std::string_view("0\r\n\r\n")));
  }
  absl::Status sent = co_await send(std::move(last));
  if (sent.ok()) answer_ = Answer::kDone;
  co_return sent;
}

asio::awaitable<absl::Status> Connection::send(Bytes bytes) {
  if (disconnected_) co_return gone();
  // Called before each piece: the time counts from when the client took the one before.
  const auto next_piece = [this](const error_code& failure, size_t) -> size_t {
    if (failure) return 0;
    write_deadline_.arm(config_.limits.write_timeout_ms, weak_from_this(),
                        &Connection::write_expired);
    return kChunkBytes;
  };
  error_code code;
  const size_t written = co_await asio::async_write(
      socket_, bytes, next_piece, asio::redirect_error(asio::use_awaitable, code));
  write_deadline_.disarm();
  response_bytes_ += written;
  if (!code) co_return absl::OkStatus();
  client_gone();
  co_return gone();
}

asio::awaitable<void> Connection::linger() {
  if (disconnected_ || input_ended_) co_return;
  error_code code;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, code);
  read_deadline_.arm(kLingerTimeoutMs, weak_from_this(), &Connection::read_expired);
  chunk_.resize(kChunkBytes);
  size_t dropped = 0;
  while (!code && dropped < kLingerBytes && !read_pending_) {
    dropped += co_await socket_.async_read_some(asio::buffer(chunk_),
                                                asio::redirect_error(asio::use_awaitable, code));
  }
  read_deadline_.disarm();
}

void Connection::client_gone() {
  disconnected_ = true;
  for (Exchange::DisconnectGuard* guard : std::exchange(guards_, {})) guard->action_();
}

void Connection::read_expired() {
  read_timed_out_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::write_expired() { close(); }

void Connection::finish_soon() {
  finishing_ = true;
  if (in_request_) return;
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::abort() {
  finishing_ = true;
  if (in_request_) client_gone();
  close();
}

void Connection::close() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace ragcache::http
