#include "common/http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/http/error.h"
#include "common/http/event.h"
#include "common/http/server.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

using boost::asio::awaitable;
using testing::HasSubstr;

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerConfig config;
    config.format_error = [](const absl::Status& status) {
      return Response{.status = http_status(status), .body = std::string(status.message())};
    };
    Router router;
    router.add("POST", "/count", [](Exchange& exchange) -> awaitable<void> {
      size_t bytes = 0;
      while (true) {
        absl::StatusOr<std::string_view> chunk = co_await exchange.read_chunk();
        if (!chunk.ok()) co_return;
        if (chunk->empty()) break;
        bytes += chunk->size();
      }
      Response response{.body = str_cat(bytes)};
      response.headers.add("X-Kind", std::string(exchange.request().headers.get("x-kind")));
      co_await exchange.respond(std::move(response));
    });
    router.add("POST", "/echo", [](Exchange& exchange) -> awaitable<void> {
      Response response;
      absl::Status status = co_await exchange.start_stream(std::move(response));
      while (status.ok()) {
        absl::StatusOr<std::string_view> chunk = co_await exchange.read_chunk();
        if (!chunk.ok()) co_return;
        if (chunk->empty()) break;
        std::string copy(*chunk);
        status = co_await exchange.write(std::move(copy));
      }
      if (status.ok()) co_await exchange.finish_stream();
    });
    router.add("POST", "/refuse", [](Exchange& exchange) -> awaitable<void> {
      Response response{.status = 400, .body = "line 3"};
      co_await exchange.respond(std::move(response));
    });
    router.add("GET", "/never", [](Exchange& exchange) -> awaitable<void> {
      Event event(exchange.executor());
      Exchange::DisconnectGuard guard(exchange, [&] { event.set(); });
      co_await event.wait();
    });
    router.add("GET", "/cut", [](Exchange& exchange) -> awaitable<void> {
      Response response;
      co_await exchange.start_stream(std::move(response));
      std::string half = "half";
      co_await exchange.write(std::move(half));
    });
    auto server = Server::start(std::move(config), std::move(router));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  Client client(ClientOptions options = {}) {
    return *Client::create(str_cat("http://", server_->address()), options);
  }

  std::unique_ptr<Server> server_;
};

TEST_F(ClientTest, SendsBodiesAndHeaders) {
  const absl::StatusOr<Response> response = client().fetch(
      {.method = "POST", .target = "/count", .headers = {{"X-Kind", "k"}}, .body = "12345"});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200u);
  EXPECT_EQ(response->body, "5");
  EXPECT_EQ(response->headers.get("x-kind"), "k");
  EXPECT_EQ(client().fetch({.target = "/nothing"})->status, 404u);
}

TEST_F(ClientTest, GoesUpWhileTheAnswerComesDown) {
  // Each piece goes up only when the one before has come back.
  int sent = 0;
  size_t received = 0;
  ClientRequest request{.method = "POST", .target = "/echo"};
  request.body_source = [&]() -> absl::StatusOr<std::string> {
    return ++sent > 50 ? std::string() : std::string(100'000, 'x');
  };
  const absl::StatusOr<Response> head =
      client().stream(request, [&](const Response& head, std::string_view bytes) {
        EXPECT_EQ(head.status, 200u);
        received += bytes.size();
        return absl::OkStatus();
      });
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(received, 5'000'000u);
}

TEST_F(ClientTest, ReadsAnAnswerThatComesBeforeItsRequestEnds) {
  ClientRequest request{.method = "POST", .target = "/refuse"};
  request.body_source = []() -> absl::StatusOr<std::string> { return std::string(10'000, 'x'); };
  const absl::StatusOr<Response> response = client().fetch(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 400u);
  EXPECT_EQ(response->body, "line 3");
}

TEST_F(ClientTest, ReportsWhatItsSourceAndSinkReport) {
  ClientRequest request{.method = "POST", .target = "/count"};
  request.body_source = []() -> absl::StatusOr<std::string> {
    return absl::DataLossError("file vanished");
  };
  EXPECT_TRUE(absl::IsDataLoss(client().fetch(request).status()));
  const absl::StatusOr<Response> stopped =
      client().stream({.method = "POST", .target = "/echo", .body = "x"},
                      [](const Response&, std::string_view) { return absl::AbortedError("stop"); });
  EXPECT_TRUE(absl::IsAborted(stopped.status()));
}

TEST_F(ClientTest, SaysWhatToDoWhenNobodyListens) {
  const std::string address = server_->address();
  server_->stop(std::chrono::milliseconds(0));
  const absl::Status status = Client::create(address)->fetch({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("connection refused at " + address + "; is `ragcache serve` running?"));
}

TEST_F(ClientTest, GivesUpOnASilentServer) {
  const absl::Status status = client({.idle_timeout_ms = 30}).fetch({.target = "/never"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(ClientTest, NoticesACutAnswer) {
  const absl::Status status = client().fetch({.target = "/cut"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("before its answer was whole"));
}

TEST_F(ClientTest, BoundsAFetchedAnswer) {
  const absl::Status status =
      client({.max_response_bytes = 10})
          .fetch({.method = "POST", .target = "/echo", .body = std::string(11, 'x')})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(ClientUrl, IsCheckedBeforeUse) {
  for (const char* url :
       {"", "http://", "https://x:1", "http://x:0", "x:99999", "x:y", "http://:80"}) {
    EXPECT_FALSE(Client::create(url).ok()) << url;
  }
  const absl::StatusOr<Client> full = Client::create("http://[::1]:8080/prefix/");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->host(), "::1");
  EXPECT_EQ(full->port(), "8080");
}

}  // namespace
}  // namespace ragcache::http
