#include "common/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/read_until.hpp>
#include <deque>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/file_limit.h"
#include "common/http/error.h"
#include "common/http/event.h"
#include "common/strings.h"
#include "tests/fakes/raw_client.h"

namespace ragcache::http {
namespace {

using boost::asio::awaitable;
using fakes::RawClient;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

Response text_response(std::string body) {
  Response response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

std::string get(std::string_view target, std::string_view headers = "") {
  return str_cat("GET ", target, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n");
}

std::string post(std::string_view target, std::string_view body) {
  return str_cat("POST ", target, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                 "\r\n\r\n", body);
}

std::string body_of(const std::string& answer) {
  const size_t head = answer.find("\r\n\r\n");
  return head == std::string::npos ? "no answer" : answer.substr(head + 4);
}

// A body far longer than what the sockets between hold, if the client's holds so much.
constexpr size_t kLargeBytes = 48 << 20;
constexpr int kReceiveBuffer = 256 << 10;

class ServerTest : public testing::Test {
 protected:
  void start(Limits limits = {}) {
    ServerConfig config;
    config.limits = limits;
    config.threads = 2;
    config.format_error = [](const absl::Status& status) {
      Response response = text_response(std::string(status.message()));
      response.status = http_status(status);
      return response;
    };
    config.observer.request_done = [this](const RequestRecord& record) {
      std::lock_guard lock(mutex_);
      records_.push_back(
          str_cat(record.request.method, " ", record.request.route, " ", record.status));
      record_added_.notify_all();
    };
    config.observer.connections = [this](int change) { connections_ += change; };
    auto server = Server::start(std::move(config), routes());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  void TearDown() override {
    if (server_ == nullptr) return;
    server_->stop(std::chrono::seconds(10));
    EXPECT_EQ(connections_, 0);
  }

  Router routes() {
    Router router;
    router.add("GET", "/hello/{name}", [](Exchange& exchange) -> awaitable<void> {
      Response response =
          text_response(str_cat("hello ", *find_parameter(exchange.request().path_values, "name")));
      co_await exchange.respond(std::move(response));
    });
    router.add("POST", "/echo", [](Exchange& exchange) -> awaitable<void> {
      absl::StatusOr<std::string> body = co_await exchange.read_body();
      Response response = text_response(body.ok() ? *body : std::string(body.status().message()));
      if (!body.ok()) response.status = http_status(body.status());
      if (!exchange.disconnected()) co_await exchange.respond(std::move(response));
    });
    router.add("POST", "/unread", [](Exchange& exchange) -> awaitable<void> {
      Response response = text_response("not read");
      co_await exchange.respond(std::move(response));
    });
    router.add("GET", "/stream", [](Exchange& exchange) -> awaitable<void> {
      Response response = text_response("");
      absl::Status status = co_await exchange.start_stream(std::move(response));
      for (const char* word : {"one ", "", "two"}) {
        std::string piece = word;
        if (status.ok()) status = co_await exchange.write(std::move(piece));
      }
      if (status.ok()) co_await exchange.finish_stream();
    });
    router.add("GET", "/flood", [this](Exchange& exchange) -> awaitable<void> {
      Response response = text_response("");
      absl::Status status = co_await exchange.start_stream(std::move(response));
      while (status.ok()) {
        std::string piece(64 << 10, 'x');
        status = co_await exchange.write(std::move(piece));
        flooded_ += 64 << 10;
      }
      flood_ended_.set_value();
    });
    router.add("GET", "/large", [](Exchange& exchange) -> awaitable<void> {
      Response response = text_response(std::string(kLargeBytes, 'x'));
      co_await exchange.respond(std::move(response));
    });
    router.add("GET", "/wait", [this](Exchange& exchange) -> awaitable<void> {
      Event event(exchange.executor());
      Exchange::DisconnectGuard guard(exchange, [&] { event.set(); });
      waiting_.set_value();
      co_await event.wait();
      cancelled_.set_value();
    });
    router.add("GET", "/cut", [](Exchange& exchange) -> awaitable<void> {
      Response response = text_response("");
      co_await exchange.start_stream(std::move(response));
      std::string piece = "half";
      co_await exchange.write(std::move(piece));
      throw std::runtime_error("handler failed");
    });
    router.add("GET", "/silent", [](Exchange&) -> awaitable<void> { co_return; });
    return router;
  }

  std::string wait_for_record() {
    std::unique_lock lock(mutex_);
    record_added_.wait_for(lock, std::chrono::seconds(10), [this] { return !records_.empty(); });
    return records_.empty() ? "none" : records_.back();
  }

  static bool soon(std::promise<void>& promise) {
    return promise.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }

  std::atomic<int> connections_ = 0;
  std::atomic<size_t> flooded_ = 0;
  std::promise<void> waiting_, cancelled_, flood_ended_;
  std::mutex mutex_;
  std::condition_variable record_added_;
  std::vector<std::string> records_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(server_->port());
  client.send(get("/hello/a") + post("/echo", "body one") + get("/hello/b%20c") +
              post("/echo", "") + get("/nowhere"));
  EXPECT_EQ(body_of(client.read_answer()), "hello a");
  EXPECT_EQ(body_of(client.read_answer()), "body one");
  EXPECT_EQ(body_of(client.read_answer()), "hello b c");
  EXPECT_EQ(body_of(client.read_answer()), "");
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  client.send(get("/hello/again"));
  EXPECT_EQ(body_of(client.read_answer()), "hello again");
}

TEST_F(ServerTest, AnswersMorePipelinedRequestsThanItKeepsWaiting) {
  start();
  RawClient client(server_->port());
  const std::string long_field = "X: " + std::string(5000, 'x') + "\r\n";
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    requests += get(str_cat("/hello/", i), long_field) + post("/echo", str_cat("body ", i));
  }
  client.send(requests);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(body_of(client.read_answer()), str_cat("hello ", i));
    ASSERT_EQ(body_of(client.read_answer()), str_cat("body ", i));
  }
}

TEST_F(ServerTest, ReadsARequestSplitAtEveryByte) {
  start();
  const std::string request =
      "\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n" +
      get("/hello/x");
  RawClient client(server_->port());
  for (size_t at = 1; at < request.size(); ++at) {
    client.send(request.substr(0, at));
    client.send(request.substr(at));
    ASSERT_EQ(body_of(client.read_answer()), "abcdefg") << "split at " << at;
    ASSERT_EQ(body_of(client.read_answer()), "hello x") << "split at " << at;
  }
  for (char byte : request) client.send(std::string(1, byte));
  EXPECT_EQ(body_of(client.read_answer()), "abcdefg");
  EXPECT_EQ(body_of(client.read_answer()), "hello x");
}

TEST_F(ServerTest, StreamsInChunksOfTheExactBytes) {
  start();
  RawClient client(server_->port());
  client.send(get("/stream"));
  client.send(get("/hello/after", "Connection: close\r\n"));
  const std::string all = client.read_all();
  EXPECT_THAT(all, HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_THAT(all, HasSubstr("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_THAT(all, EndsWith("hello after"));
}

TEST_F(ServerTest, SpeaksHttp10WithoutChunks) {
  start();
  RawClient client(server_->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.read_all();
  EXPECT_THAT(all, EndsWith("\r\n\r\none two"));
  EXPECT_THAT(all, testing::Not(HasSubstr("chunked")));
}

TEST_F(ServerTest, AnswersHeadWithoutABody) {
  start();
  RawClient client(server_->port());
  client.send("HEAD /hello/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(ServerTest, NamesTheAllowedMethods) {
  start();
  RawClient client(server_->port());
  client.send("DELETE /hello/x HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
}

TEST_F(ServerTest, EchoesAGoodRequestIdAndReplacesABadOne) {
  start();
  RawClient client(server_->port());
  client.send(get("/hello/x", "X-Request-Id: abc-1\r\n"));
  EXPECT_THAT(client.read_answer(), HasSubstr("\r\nx-request-id: abc-1\r\n"));
  client.send(get("/hello/x", "X-Request-Id: \"quoted\"\r\n"));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, HasSubstr("\r\nx-request-id: "));
  EXPECT_THAT(answer, testing::Not(HasSubstr("quoted")));
}

TEST_F(ServerTest, SendsContinueOnlyWhenTheBodyIsRead) {
  start();
  RawClient client(server_->port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(body_of(client.read_answer()), "ok");
  client.send(
      "POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
}

TEST_F(ServerTest, BoundsHeaderAndBody) {
  start({.max_header_bytes = 1024, .max_body_bytes = 100});
  const std::string long_field = "X: " + std::string(2000, 'x') + "\r\n";
  RawClient header(server_->port());
  header.send(get("/hello/x", long_field));
  EXPECT_THAT(header.read_all(), StartsWith("HTTP/1.1 431 "));

  RawClient exact(server_->port());
  exact.send(post("/echo", std::string(100, 'b')));
  EXPECT_EQ(body_of(exact.read_answer()).size(), 100u);

  RawClient announced(server_->port());
  announced.send(post("/echo", std::string(101, 'b')));
  EXPECT_THAT(announced.read_all(), StartsWith("HTTP/1.1 413 "));

  RawClient chunked(server_->port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
               std::string(101, 'b') + "\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.read_all(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(ServerTest, DeliversAnEarlyAnswerThoughTheBodyIsLarge) {
  start();
  RawClient client(server_->port());
  client.send(post("/unread", std::string(3 << 20, 'b')));
  EXPECT_THAT(client.read_all(), EndsWith("not read"));
}

TEST_F(ServerTest, RefusesMalformedRequests) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {"\x16\x03\x01\x02", "400"},
      {"GET\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\n\r\n", "400"},  // no Host
      {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "505"},
      {"GET /%zz/x HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
      {"GET /hello/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost: x\r\nBad Field: y\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: coffee\r\n\r\n", "417"},
  };
  for (const auto& [request, status] : cases) {
    RawClient client(server_->port());
    client.send(request);
    EXPECT_THAT(client.read_answer(), StartsWith(str_cat("HTTP/1.1 ", status, " "))) << request;
  }
}

TEST_F(ServerTest, TellsASlowClientThatItsTimeIsUp) {
  start({.header_timeout_ms = 50, .body_timeout_ms = 50, .idle_timeout_ms = 60});
  RawClient header(server_->port());
  header.send("GET /hello");
  EXPECT_THAT(header.read_all(), StartsWith("HTTP/1.1 408 "));

  RawClient body(server_->port());
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_THAT(body.read_all(), StartsWith("HTTP/1.1 408 "));

  RawClient idle(server_->port());
  EXPECT_EQ(idle.read_all(), "");
  RawClient idle_after(server_->port());
  idle_after.send(get("/hello/x"));
  EXPECT_THAT(idle_after.read_all(), EndsWith("hello x"));
}

TEST_F(ServerTest, LetsNoBodyComeForLongByteByByte) {
  start({.whole_body_timeout_ms = 100});
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  std::future<std::string> answer =
      std::async(std::launch::async, [&client] { return client.read_all(); });
  for (int i = 0; i < 999; ++i) {
    if (answer.wait_for(std::chrono::milliseconds(10)) == std::future_status::ready) break;
    client.send("x");
  }
  EXPECT_THAT(answer.get(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerTest, HoldsTheHandlerBackWhileTheClientDoesNotRead) {
  start({.write_timeout_ms = 100});
  RawClient client(server_->port());
  client.send(get("/flood"));
  ASSERT_TRUE(soon(flood_ended_));
  // What the sockets buffer, not what a second of writing could make.
  EXPECT_LT(flooded_.load(), 64u << 20);
  EXPECT_EQ(wait_for_record(), "GET /flood 499");
}

TEST_F(ServerTest, WritesOnWhileASlowClientReads) {
  start({.write_timeout_ms = 1000});
  RawClient client(server_->port(), kReceiveBuffer);
  client.send(get("/large", "Connection: close\r\n"));
  // 192 pauses or more: the few between two writes far below the timeout, all together above it.
  for (int reads = 1; client.read_some(); ++reads) {
    if (reads % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(body_of(client.read_all()).size(), kLargeBytes);
}

TEST_F(ServerTest, CutsOffAClientThatStopsReading) {
  start({.write_timeout_ms = 100});
  RawClient client(server_->port(), kReceiveBuffer);
  client.send(get("/large"));
  EXPECT_EQ(wait_for_record(), "GET /large 499");
}

TEST_F(ServerTest, TellsTheHandlerThatItsClientIsGone) {
  start();
  RawClient client(server_->port());
  client.send(get("/wait"));
  ASSERT_TRUE(soon(waiting_));
  client.close();
  EXPECT_TRUE(soon(cancelled_));
  EXPECT_EQ(wait_for_record(), "GET /wait 499");
}

TEST_F(ServerTest, TellsTheHandlerThatItsClientIsGoneThoughFurtherRequestsWait) {
  start();
  RawClient client(server_->port());
  client.send(get("/wait") + get("/hello/with-it"));
  ASSERT_TRUE(soon(waiting_));
  client.send(get("/hello/later"));
  client.close();
  EXPECT_TRUE(soon(cancelled_));
  EXPECT_EQ(wait_for_record(), "GET /wait 499");
}

TEST_F(ServerTest, TellsTheHandlerThatItsClientReset) {
  start();
  RawClient client(server_->port());
  client.send(get("/wait"));
  ASSERT_TRUE(soon(waiting_));
  client.reset();
  EXPECT_TRUE(soon(cancelled_));
}

TEST_F(ServerTest, ForgetsHalfARequest) {
  start();
  for (const char* half : {"G", "GET /hello/x HTTP/1.1\r\nHost",
                           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"}) {
    RawClient client(server_->port());
    client.send(half);
    client.close();
  }
  RawClient client(server_->port());
  client.send(get("/hello/x"));
  EXPECT_EQ(body_of(client.read_answer()), "hello x");
}

TEST_F(ServerTest, SurvivesRandomlyCorruptedRequests) {
  start({.max_header_bytes = 4096, .max_body_bytes = 1000});
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 draw(seed);
  const std::string whole = get("/hello/x?a=b", "X-A: 1\r\n") + post("/echo", "body") +
                            "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "4\r\nbody\r\n0\r\n\r\n";
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    for (uint32_t i = 0, n = 1 + draw() % 3; i < n; ++i) {
      const size_t at = draw() % bytes.size();
      switch (draw() % 4) {
        case 0:
          bytes[at] = static_cast<char>(draw());
          break;
        case 1:
          bytes.erase(at, 1 + draw() % 5);
          break;
        case 2:
          bytes.insert(at, bytes.substr(draw() % bytes.size(), draw() % 30));
          break;
        default:
          bytes[at] = "\r\n: 0fF"[draw() % 7];
          break;
      }
    }
    RawClient client(server_->port());
    client.send(bytes);
    client.end_sending();
    const std::string answer = client.read_all();
    ASSERT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << answer;
    ASSERT_THAT(answer, testing::Not(HasSubstr("HTTP/1.1 500")));
  }
  RawClient client(server_->port());
  client.send(get("/hello/x"));
  EXPECT_EQ(body_of(client.read_answer()), "hello x");
}

TEST_F(ServerTest, ShowsThatAFailedHandlerFailed) {
  start();
  RawClient silent(server_->port());
  silent.send(get("/silent"));
  EXPECT_THAT(silent.read_answer(), StartsWith("HTTP/1.1 500 "));
  RawClient cut(server_->port());
  cut.send(get("/cut"));
  const std::string all = cut.read_all();
  EXPECT_THAT(all, EndsWith("4\r\nhalf\r\n"));  // no last chunk
}

TEST_F(ServerTest, TurnsAwayWhatIsOverTheConnectionLimit) {
  start({.max_connections = 2});
  RawClient first(server_->port()), second(server_->port());
  first.send(get("/hello/1"));
  second.send(get("/hello/2"));
  EXPECT_EQ(body_of(first.read_answer()), "hello 1");
  EXPECT_EQ(body_of(second.read_answer()), "hello 2");
  RawClient third(server_->port());
  EXPECT_THAT(third.read_all(), StartsWith("HTTP/1.1 503 "));
  first.send(get("/hello/still"));
  EXPECT_EQ(body_of(first.read_answer()), "hello still");
}

// Resident memory of this process.
size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(ServerTest, HoldsThousandsOfIdleConnectionsCheaply) {
  constexpr size_t wanted = 5000;
  constexpr size_t files = 2 * wanted + 200;  // both ends are in this process
  raise_file_limit(files);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < files)
    GTEST_SKIP() << "may have no more than " << limit.rlim_cur << " files";
  start();
  const size_t before = resident_bytes();
  boost::asio::io_context io;
  std::deque<boost::asio::ip::tcp::socket> idle;
  const std::string request = post("/echo", std::string(2000, 'x'));
  for (size_t i = 0; i < wanted; ++i) {
    auto& socket = idle.emplace_back(io);
    socket.connect({boost::asio::ip::address_v4::loopback(), server_->port()});
    if (i % 2 == 0) continue;  // half of them have never asked anything
    boost::asio::write(socket, boost::asio::buffer(request));
    std::string answer;
    boost::asio::read_until(socket, boost::asio::dynamic_buffer(answer), "xxx");
  }
  RawClient client(server_->port());
  client.send(get("/hello/x"));
  EXPECT_EQ(body_of(client.read_answer()), "hello x");
  EXPECT_EQ(connections_, static_cast<int>(wanted) + 1);
  EXPECT_LT((resident_bytes() - before) / wanted, 64u << 10) << "bytes for each, both ends";
}

TEST_F(ServerTest, NamesThePortInUse) {
  start();
  ServerConfig config;
  config.port = server_->port();
  config.format_error = [](const absl::Status&) { return Response{}; };
  const auto second = Server::start(std::move(config), Router());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(str_cat("another process listens on 127.0.0.1:", server_->port())));
}

TEST_F(ServerTest, DisconnectsWhatDoesNotEndWithinTheGrace) {
  start();
  RawClient idle(server_->port());
  idle.send(get("/hello/x"));
  idle.read_answer();
  RawClient client(server_->port());
  client.send(get("/wait"));
  ASSERT_TRUE(soon(waiting_));
  server_->stop(std::chrono::milliseconds(20));
  EXPECT_TRUE(soon(cancelled_));
  EXPECT_EQ(connections_, 0);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_EQ(client.read_all(), "");
}

}  // namespace
}  // namespace ragcache::http
