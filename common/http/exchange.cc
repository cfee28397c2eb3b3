#include "common/http/exchange.h"

#include <algorithm>
#include <utility>

#include "common/http/connection.h"
#include "common/http/error.h"
#include "common/strings.h"

namespace ragcache::http {

namespace asio = boost::asio;

const Request& Exchange::request() const { return connection_.request_; }

std::chrono::steady_clock::time_point Exchange::arrival() const { return connection_.arrival_; }

asio::any_io_executor Exchange::executor() const { return connection_.executor(); }

asio::awaitable<absl::StatusOr<std::string>> Exchange::read_body(
    std::chrono::steady_clock::time_point deadline) {
  const size_t limit = connection_.config_.limits.max_body_bytes;
  const int64_t timeout_ms = connection_.config_.limits.whole_body_timeout_ms;
  const auto latest = arrival() + std::chrono::milliseconds(timeout_ms);
  absl::Status too_long =
      error(413, str_cat("the request's body is longer than ", limit, " bytes"));
  const auto announced = connection_.parser_->content_length();
  if (announced && *announced > limit) co_return too_long;
  std::string body;
  while (true) {
    absl::StatusOr<std::string_view> chunk =
        co_await connection_.read_chunk(std::min(deadline, latest));
    if (absl::IsDeadlineExceeded(chunk.status()) && latest < deadline) {
      co_return error(408, str_cat("the request's body did not come within ", timeout_ms, " ms"));
    }
    if (!chunk.ok()) co_return chunk.status();
    if (chunk->empty()) co_return body;
    if (body.size() + chunk->size() > limit) co_return too_long;
    body.append(*chunk);
  }
}

asio::awaitable<absl::StatusOr<std::string_view>> Exchange::read_chunk() {
  return connection_.read_chunk(kNoDeadline);
}

asio::awaitable<absl::Status> Exchange::respond(Response response) {
  return connection_.respond(std::move(response));
}

asio::awaitable<absl::Status> Exchange::start_stream(Response response) {
  return connection_.start_stream(std::move(response));
}

asio::awaitable<absl::Status> Exchange::write(std::string bytes) {
  return connection_.write(std::move(bytes));
}

asio::awaitable<absl::Status> Exchange::finish_stream() { return connection_.finish_stream(); }

bool Exchange::response_started() const { return connection_.answer_ != Connection::Answer::kNone; }

bool Exchange::disconnected() const { return connection_.disconnected_; }

Exchange::DisconnectGuard::DisconnectGuard(Exchange& exchange, std::function<void()> action)
    : connection_(exchange.connection_), action_(std::move(action)) {
  if (exchange.disconnected()) {
    action_();
  } else {
    connection_.guards_.push_back(this);
  }
}

Exchange::DisconnectGuard::~DisconnectGuard() { std::erase(connection_.guards_, this); }

}  // namespace ragcache::http
