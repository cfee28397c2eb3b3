#include "loadgen/load/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/strings.h"
#include "tests/fakes/fake_openai.h"

namespace ragcache::loadgen {
namespace {

using boost::asio::ip::tcp;
using fakes::FakeOpenAi;
using fakes::FakeStream;
using std::chrono::milliseconds;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<Request> questions(size_t count, Duration interval) {
  std::vector<Request> requests(count);
  for (size_t i = 0; i < count; ++i) {
    requests[i].at = interval * i;
    requests[i].prompt = ChatPrompt{str_cat("question ", i), {}};
  }
  return requests;
}

LoadResult load(const std::string& url, const std::vector<Request>& requests,
                LoadOptions options = {}) {
  absl::StatusOr<LoadResult> result = run_load({.url = url}, requests, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : LoadResult{};
}

const auto kAnswered = Field("error", &Outcome::error, testing::IsEmpty());

// A listener whose connections a test handles byte by byte, on a thread of its own.
class RawServer {
 public:
  explicit RawServer(std::function<void(tcp::acceptor&)> script)
      : acceptor_(io_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        thread_([this, script = std::move(script)] {
          tcp::socket probe = acceptor_.accept();  // run_load() looks whether somebody is there
          probe.close();
          script(acceptor_);
        }) {}
  ~RawServer() { thread_.join(); }

  std::string url() {
    return str_cat("http://127.0.0.1:", acceptor_.local_endpoint().port(), "/v1/");
  }

 private:
  boost::asio::io_context io_;
  tcp::acceptor acceptor_;
  std::thread thread_;
};

void read_request(tcp::socket& socket) {
  std::string bytes;
  const size_t head =
      boost::asio::read_until(socket, boost::asio::dynamic_buffer(bytes), "\r\n\r\n");
  const size_t length = std::stoul(bytes.substr(bytes.find("Content-Length: ") + 16));
  std::vector<char> rest(head + length - bytes.size());
  boost::asio::read(socket, boost::asio::buffer(rest));
}

void write_bytes(tcp::socket& socket, const std::string& bytes) {
  boost::asio::write(socket, boost::asio::buffer(bytes));
}

std::string whole_answer() {
  const std::string body =
      "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n"
      "data: [DONE]\n\n";
  return str_cat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: ",
                 body.size(), "\r\n\r\n", body);
}

TEST(Load, TellsOfEachRequestWhatBecameOfIt) {
  FakeOpenAi server(
      {.tokens = 3, .first_token = milliseconds(5), .token_interval = milliseconds(2)});
  const LoadResult result = load(server.url(), questions(5, milliseconds(10)));
  EXPECT_TRUE(result.status.ok());
  ASSERT_EQ(result.outcomes.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const Outcome& outcome = result.outcomes[i];
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.text, "t0 t1 t2 ");
    EXPECT_EQ(outcome.at, milliseconds(10) * i);
    EXPECT_GE(outcome.sent, outcome.at);
    ASSERT_TRUE(outcome.first_token);
    EXPECT_GE(*outcome.first_token, outcome.sent + milliseconds(5));
    EXPECT_GE(outcome.end, std::max(*outcome.first_token, outcome.sent + milliseconds(9)));
    EXPECT_EQ(outcome.prompt_tokens, 100u);
    EXPECT_EQ(outcome.cached_tokens, 60u);
    EXPECT_EQ(outcome.cached_documents, 1u);
    EXPECT_EQ(outcome.completion_tokens, 3u);
    EXPECT_EQ(outcome.search_ms, 1.5);
    EXPECT_EQ(outcome.scheduling_us, 12);
  }
  const std::vector<std::string> requests = server.requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(nlohmann::json::parse(requests[2])["messages"][0]["content"], "question 2");
}

TEST(Load, SendsByTimeWhateverTheOrderOfRequests) {
  FakeOpenAi server;
  std::vector<Request> requests = questions(3, milliseconds(20));
  std::swap(requests[0].at, requests[2].at);
  const LoadResult result = load(server.url(), requests);
  EXPECT_GE(result.outcomes[0].sent, milliseconds(40));
  EXPECT_LT(result.outcomes[2].sent, result.outcomes[0].sent);
  EXPECT_EQ(nlohmann::json::parse(server.requests()[0])["messages"][0]["content"], "question 2");
}

TEST(Load, IsOpen) {
  // A server that answers nothing delays nothing.
  FakeOpenAi server({.tokens = 0, .end = FakeStream::End::kHang});
  const LoadResult result = load(server.url(), questions(50, milliseconds(2)),
                                 {.timeout_s = 2, .max_failures_in_row = 0});
  Duration last_sent{};
  Duration first_end = Duration::max();
  for (const Outcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.error, "timeout: no whole answer within 2 s");
    EXPECT_GE(outcome.end, outcome.sent + milliseconds(2000));
    last_sent = std::max(last_sent, outcome.sent);
    first_end = std::min(first_end, outcome.end);
  }
  EXPECT_LT(last_sent, first_end);
  EXPECT_TRUE(result.status.ok());
}

TEST(Load, CountsFromTheTimeWhenARequestShouldHaveBeenSent) {
  // The server takes nothing until both requests are there, the second 50 ms later.
  RawServer server([](tcp::acceptor& acceptor) {
    tcp::socket first = acceptor.accept();
    tcp::socket second = acceptor.accept();
    for (tcp::socket* socket : {&first, &second}) {
      read_request(*socket);
      write_bytes(*socket, whole_answer());
    }
  });
  const LoadResult result = load(server.url(), questions(2, milliseconds(50)));
  ASSERT_TRUE(result.outcomes[0].first_token);
  EXPECT_GE(*result.outcomes[0].first_token, milliseconds(50));
  EXPECT_LT(result.outcomes[0].sent, milliseconds(50));
  EXPECT_EQ(result.outcomes[1].error, "");
}

TEST(Load, UsesConnectionsAgain) {
  FakeOpenAi server;
  const LoadResult result = load(server.url(), questions(20, milliseconds(10)));
  EXPECT_THAT(result.outcomes, Each(kAnswered));
  // One to look whether the server is there. On a slow day a request finds the other one's
  // connection still in use.
  EXPECT_LT(server.connections(), 10u);
}

TEST(Load, SendsAgainWhatMetAConnectionThatTheServerHadClosed) {
  RawServer server([](tcp::acceptor& acceptor) {
    for (int i = 0; i < 2; ++i) {
      tcp::socket socket = acceptor.accept();
      read_request(socket);
      write_bytes(socket, whole_answer());
    }
  });
  const LoadResult result = load(server.url(), questions(2, milliseconds(100)));
  EXPECT_THAT(result.outcomes, Each(kAnswered));
  ASSERT_EQ(result.outcomes.size(), 2u);
  EXPECT_FALSE(result.outcomes[0].resent);
  EXPECT_TRUE(result.outcomes[1].resent);
}

TEST(Load, SendsNothingAThirdTime) {
  RawServer server([](tcp::acceptor& acceptor) {
    tcp::socket kept = acceptor.accept();
    read_request(kept);
    write_bytes(kept, whole_answer());
    read_request(kept);
    kept.close();
    tcp::socket next = acceptor.accept();
    read_request(next);
    next.close();
  });
  const LoadResult result = load(server.url(), questions(2, milliseconds(100)));
  ASSERT_EQ(result.outcomes.size(), 2u);
  EXPECT_THAT(result.outcomes[0], kAnswered);
  EXPECT_THAT(result.outcomes[1].error, StartsWith("closed: "));
  EXPECT_TRUE(result.outcomes[1].resent);
}

TEST(Load, NamesEachWayOfFailing) {
  using End = FakeStream::End;
  FakeOpenAi server;
  const auto error_of = [&](FakeStream stream) {
    server.set_stream(stream);
    return load(server.url(), questions(1, Duration(0)), {.timeout_s = 0.3}).outcomes[0].error;
  };
  EXPECT_EQ(error_of({.end = End::kStatus}), "status 500: no model");
  EXPECT_EQ(error_of({.end = End::kNoStream}),
            "malformed: the answer is application/json, not text/event-stream");
  EXPECT_THAT(error_of({.end = End::kBroken}), StartsWith("malformed: a chunk is no JSON object"));
  EXPECT_EQ(error_of({.end = End::kError}), "server: worker is gone");
  EXPECT_THAT(error_of({.end = End::kCut}), StartsWith("closed: "));
  EXPECT_EQ(error_of({.end = End::kHang}), "timeout: no whole answer within 0.3 s");
  server.stop();
  EXPECT_TRUE(
      absl::IsUnavailable(run_load({.url = server.url()}, questions(1, Duration(0)), {}).status()));
}

TEST(Load, NamesConnectionsThatAreResetOrSaySomethingElse) {
  RawServer server([](tcp::acceptor& acceptor) {
    tcp::socket socket = acceptor.accept();
    read_request(socket);
    socket.set_option(boost::asio::socket_base::linger(true, 0));
    socket.close();
    socket = acceptor.accept();
    read_request(socket);
    write_bytes(socket, "SSH-2.0-server\r\n\r\n");
    read_request(socket = acceptor.accept());
    write_bytes(socket, whole_answer().substr(0, 120));
  });
  const LoadResult result = load(server.url(), questions(3, milliseconds(50)));
  EXPECT_THAT(result.outcomes[0].error, StartsWith("closed: "));
  EXPECT_THAT(result.outcomes[1].error, StartsWith("malformed: no HTTP answer: "));
  EXPECT_THAT(result.outcomes[2].error, StartsWith("closed: "));
}

TEST(Load, ReadsAnswersWhosePiecesBreakAnywhere) {
  const std::string body =
      "data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\r\n\r\ndata: [DONE]\n\n";
  std::string chunked =
      "HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) chunked += str_cat("1\r\n", std::string(1, c), "\r\n");
  chunked += "0\r\n\r\n";
  RawServer server([&](tcp::acceptor& acceptor) {
    tcp::socket socket = acceptor.accept();
    socket.set_option(tcp::no_delay(true));
    read_request(socket);
    for (const char c : chunked) write_bytes(socket, std::string(1, c));
  });
  const LoadResult result = load(server.url(), questions(1, Duration(0)));
  EXPECT_EQ(result.outcomes[0].error, "");
  EXPECT_EQ(result.outcomes[0].text, "ab");
}

TEST(Load, EndsEarlyAfterManyFailuresAndKeepsWhatItHas) {
  FakeOpenAi server({.end = FakeStream::End::kStatus});
  const LoadResult result =
      load(server.url(), questions(1000, milliseconds(10)), {.max_failures_in_row = 5});
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("5 requests failed one after another, the last by status 500: no model"));
  ASSERT_EQ(result.outcomes.size(), 1000u);
  EXPECT_EQ(result.outcomes[0].error, "status 500: no model");
  EXPECT_EQ(result.outcomes[999].error, "not sent: the load had ended");
}

TEST(Load, EndsEarlyByASignal) {
  // The first progress comes while every request waits for its answer.
  FakeOpenAi server({.tokens = 1, .end = FakeStream::End::kHang});
  LoadOptions options;
  options.on_progress = [sent = false](uint64_t, uint64_t ended, uint64_t) mutable {
    if (!std::exchange(sent, true) && ended == 0) std::raise(SIGTERM);
  };
  std::vector<Request> requests = questions(3, milliseconds(1));
  requests[2].at = std::chrono::hours(1);
  const LoadResult result = load(server.url(), requests, options);
  EXPECT_TRUE(absl::IsCancelled(result.status));
  EXPECT_EQ(result.outcomes[0].error, "stopped: ended by SIGTERM");
  EXPECT_TRUE(result.outcomes[0].first_token);
  EXPECT_THAT(result.outcomes[2].error, StartsWith("not sent: "));
}

TEST(Load, BoundsWhatIsInFlight) {
  FakeOpenAi server({.tokens = 1, .end = FakeStream::End::kHang});
  const LoadResult result =
      load(server.url(), questions(5, milliseconds(1)), {.max_in_flight = 3, .timeout_s = 0.5});
  EXPECT_THAT(result.outcomes[2].error, StartsWith("timeout: "));
  EXPECT_EQ(result.outcomes[3].error, "not sent: 3 requests were in flight");
}

TEST(Load, RefusesWhatIsNoEndpoint) {
  for (const char* url : {"https://x:1", "http://", "x:y", "grpc://x", "grpc://"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(run_load({.url = url}, {}, {}).status())) << url;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      run_load({.url = "http://127.0.0.1:1", .extra = "[1]"}, {}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      run_load({.url = "http://127.0.0.1:1"}, {}, {.timeout_s = 0}).status()));
}

}  // namespace
}  // namespace ragcache::loadgen
