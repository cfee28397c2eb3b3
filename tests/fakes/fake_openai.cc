#include "tests/fakes/fake_openai.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "common/check.h"
#include "common/http/error.h"
#include "common/http/event.h"
#include "common/http/sse.h"
#include "common/strings.h"

namespace ragcache::fakes {
namespace {

using End = FakeStream::End;
using boost::asio::awaitable;

// Names of both APIs, so that one text serves both.
std::string token_event(uint32_t number) {
  return http::sse_event(str_cat(R"({"choices":[{"index":0,"text":"t)", number,
                                 R"( ","delta":{},"finish_reason":null}],"usage":null})"));
}

std::string last_events(uint32_t tokens) {
  return http::sse_event(
             R"({"choices":[{"index":0,"text":"","delta":{},"finish_reason":"length"}]})") +
         http::sse_event(
             str_cat(R"({"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":)", tokens,
                     R"(,"prompt_tokens_details":{"cached_tokens":60,"cached_documents":1}},)",
                     R"("timings":{"search_ms":1.5,"queue_ms":0.5,"scheduling_us":12}})")) +
         http::sse_event("[DONE]");
}

std::string end_events(const FakeStream& stream) {
  switch (stream.end) {
    case End::kError:
      return http::sse_event(R"({"error":{"message":"worker is gone"}})");
    case End::kBroken:
      return http::sse_event(R"({"choices":[)");
    default:
      return last_events(stream.tokens);
  }
}

}  // namespace

FakeOpenAi::FakeOpenAi(FakeStream stream) : stream_(stream) {
  http::ServerConfig config;
  config.format_error = [](const absl::Status& status) {
    return http::Response{.status = http::http_status(status),
                          .body = std::string(status.message())};
  };
  config.observer.connections = [this](int change) {
    std::lock_guard lock(mutex_);
    if (change > 0) ++connections_;
  };
  http::Router router;
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    router.add("POST", path, [this](http::Exchange& exchange) { return answer(exchange); });
  }
  auto server = http::Server::start(std::move(config), std::move(router));
  RAG_CHECK(server.ok());
  server_ = *std::move(server);
}

FakeOpenAi::~FakeOpenAi() { stop(); }

void FakeOpenAi::set_stream(FakeStream stream) {
  std::lock_guard lock(mutex_);
  stream_ = stream;
}

std::vector<std::string> FakeOpenAi::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

uint64_t FakeOpenAi::connections() const {
  std::lock_guard lock(mutex_);
  return connections_;
}

awaitable<void> FakeOpenAi::answer(http::Exchange& exchange) {
  absl::StatusOr<std::string> body = co_await exchange.read_body();
  if (!body.ok()) co_return;
  FakeStream stream;
  {
    std::lock_guard lock(mutex_);
    stream = stream_;
    requests_.push_back(*std::move(body));
  }
  if (stream.end == End::kStatus || stream.end == End::kNoStream) {
    http::Response response;
    response.status = stream.end == End::kStatus ? 500 : 200;
    response.body = R"({"error":{"message":"no model"}})";
    co_await exchange.respond(std::move(response));
    co_return;
  }

  boost::asio::steady_timer timer(exchange.executor());
  http::Exchange::DisconnectGuard guard(exchange, [&timer] { timer.cancel(); });
  TimePoint next = exchange.arrival() + stream.first_token;
  absl::Status status;
  for (uint32_t i = 0; i < stream.tokens && status.ok(); ++i, next += stream.token_interval) {
    if (next > exchange.arrival()) {
      boost::system::error_code code;
      timer.expires_at(next);
      co_await timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, code));
      if (exchange.disconnected()) co_return;
    }
    if (i == 0) {
      http::Response head;
      head.content_type = http::kSseContentType;
      status = co_await exchange.start_stream(std::move(head));
    }
    if (status.ok()) {
      std::string event = token_event(i);
      status = co_await exchange.write(std::move(event));
    }
  }
  if (!status.ok() || stream.end == End::kCut) co_return;
  if (stream.end == End::kHang) {
    boost::system::error_code code;
    timer.expires_at(TimePoint::max());
    if (!exchange.disconnected()) {
      co_await timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, code));
    }
    co_return;
  }
  std::string events = end_events(stream);
  status = co_await exchange.write(std::move(events));
  if (status.ok()) co_await exchange.finish_stream();
}

}  // namespace ragcache::fakes
