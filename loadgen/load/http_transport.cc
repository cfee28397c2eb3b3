#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/http/client.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/load/deadlines.h"
#include "loadgen/load/request_body.h"
#include "loadgen/load/streamed_answer.h"
#include "loadgen/load/transport.h"

namespace ragcache::loadgen {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using nlohmann::json;

constexpr size_t kReadBytes = 8 << 10;
// Of all requests in their final form.
constexpr size_t kPreparedBytesMax = size_t{4} << 30;

struct Connection {
  explicit Connection(asio::io_context& loop) : socket(loop) {}

  void close() {
    error_code ignored;
    socket.close(ignored);
  }

  tcp::socket socket;
  boost::beast::flat_buffer buffer;
};

// A request under way. On its coroutine's frame.
struct Flight {
  Outcome& outcome;
  const TimePoint start;
  std::unique_ptr<Connection> connection;
  std::string cut;  // if we closed the connection: the error of that

  Duration now() const { return steady_now() - start; }
  void cut_off(std::string error) {
    if (cut.empty()) cut = std::move(error);
    if (connection != nullptr) connection->close();
  }
};

class HttpTransport final : public Transport {
 public:
  HttpTransport(asio::io_context& loop, const http::Client& server, EndpointOptions endpoint,
                json extra, Duration timeout)
      : loop_(loop),
        endpoint_(std::move(endpoint)),
        extra_(std::move(extra)),
        host_(server.host()),
        port_(server.port()),
        prefix_(server.prefix()),
        where_(host_.find(':') == std::string::npos ? str_cat(host_, ":", port_)
                                                    : str_cat("[", host_, "]:", port_)),
        timeout_error_(timeout_error(timeout)),
        deadlines_(loop, timeout),
        connect_deadlines_(loop, kConnectTimeout) {
    // Base URLs of OpenAI's clients end so.
    if (prefix_.ends_with("/v1")) prefix_.resize(prefix_.size() - 3);
  }

  absl::Status prepare(const std::vector<Request>& requests) override {
    size_t bytes = 0;
    for (const Request& request : requests) {
      messages_.push_back(message_of(request));
      bytes += messages_.back().size();
      if (bytes > kPreparedBytesMax) {
        return absl::InvalidArgumentError(str_cat("the first ", messages_.size(),
                                                  " requests have over ", kPreparedBytesMax,
                                                  " bytes together: send fewer"));
      }
    }
    return find_server();
  }

  void send(size_t index, TimePoint start, Outcome& outcome, std::function<void()> done) override {
    asio::co_spawn(loop_, exchange(messages_[index], start, outcome),
                   [done = std::move(done)](const std::exception_ptr& failure) {
                     RAG_CHECK(failure == nullptr);
                     done();
                   });
  }

  void abort(const std::string& error) override {
    for (Flight* flight : flights_) flight->cut_off(error);
  }

 private:
  std::string message_of(const Request& request) const {
    const std::string body = request_body(request, endpoint_, extra_);
    const std::string key = endpoint_.api_key.empty()
                                ? ""
                                : str_cat("Authorization: Bearer ", endpoint_.api_key, "\r\n");
    return str_cat("POST ", prefix_, target_of(request), " HTTP/1.1\r\nHost: ", where_,
                   "\r\nContent-Type: application/json\r\nAccept: ", http::kSseContentType, "\r\n",
                   key, "Content-Length: ", body.size(), "\r\n\r\n", body);
  }

  // Keeps the first of the host's addresses that takes a connection.
  absl::Status find_server() {
    error_code code;
    const auto found = tcp::resolver(loop_).resolve(host_, port_, code);
    if (code) {
      return absl::UnavailableError(str_cat("no address for ", where_, ": ", code.message()));
    }
    for (const auto& entry : found) {
      tcp::socket socket(loop_);
      code = asio::error::timed_out;
      socket.async_connect(entry.endpoint(), [&code](const error_code& result) { code = result; });
      loop_.restart();
      loop_.run_for(kConnectTimeout);
      if (!code) {
        address_ = entry.endpoint();
        return absl::OkStatus();
      }
      const error_code failure = code;
      error_code ignored;
      socket.close(ignored);
      loop_.restart();
      loop_.run();  // what is left of the attempt
      code = failure;
    }
    return absl::UnavailableError(str_cat("cannot connect to ", where_, ": ", code.message()));
  }

  asio::awaitable<void> exchange(const std::string& message, TimePoint start, Outcome& outcome) {
    Flight flight{.outcome = outcome, .start = start};
    outcome.sent = flight.now();
    flights_.insert(&flight);
    const uint64_t deadline = deadlines_.add([&] { flight.cut_off(timeout_error_); });

    // A connection that was kept may have been closed by the server just now. A request that met
    // that is sent again, once, on a new one. Most likely nobody has read it; but a server that
    // reads first and closes then looks the same from here, so that is told.
    bool answered = false;
    const bool kept = !idle_.empty();
    if (kept) {
      flight.connection = std::move(idle_.back());
      idle_.pop_back();
      answered = co_await ask(flight, message);
    }
    if (!answered) {
      outcome.error = co_await connect(flight);
      if (outcome.error.empty()) {
        outcome.resent = kept;
        answered = co_await ask(flight, message);
        if (!answered) outcome.error = closed_error();
      }
    }
    if (!flight.cut.empty() && !outcome.error.empty()) outcome.error = flight.cut;
    if (!outcome.error.empty()) outcome.end = flight.now();

    deadlines_.remove(deadline);
    flights_.erase(&flight);
  }

  // The error, if it fails.
  asio::awaitable<std::string> connect(Flight& flight) {
    if (!flight.cut.empty()) co_return flight.cut;
    flight.connection = std::make_unique<Connection>(loop_);
    tcp::socket& socket = flight.connection->socket;
    const uint64_t deadline = connect_deadlines_.add([&] {
      flight.cut_off(str_cat("timeout: no connection to ", where_, " within ",
                             to_seconds(kConnectTimeout), " s"));
    });
    error_code code;
    co_await socket.async_connect(address_, asio::redirect_error(asio::use_awaitable, code));
    connect_deadlines_.remove(deadline);
    if (code) co_return str_cat("refused: no connection to ", where_, ": ", code.message());
    socket.set_option(tcp::no_delay(true), code);
    co_return "";
  }

  // Sends the request and reads the answer. False if the connection ended without a byte of it. A
  // connection that can serve another request becomes idle.
  asio::awaitable<bool> ask(Flight& flight, const std::string& message) {
    Connection& connection = *flight.connection;
    Outcome& outcome = flight.outcome;
    error_code code;
    // A failed write is no error of its own: a server may answer early and close.
    co_await asio::async_write(connection.socket, asio::buffer(message),
                               asio::redirect_error(asio::use_awaitable, code));
    StreamedAnswer answer(outcome);
    while (!answer.is_done() && answer.error().empty()) {
      const size_t bytes = co_await connection.socket.async_read_some(
          connection.buffer.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, code));
      if (code == asio::error::eof && answer.got_some()) {
        answer.put_eof(code);
        if (!code) break;
      }
      if (code) {
        if (!answer.got_some() && flight.cut.empty()) co_return false;
        // After its last event nothing that matters is missing.
        if (!answer.done()) outcome.error = closed_error();
        co_return true;
      }
      connection.buffer.commit(bytes);
      answer.set_now(flight.now());
      connection.buffer.consume(answer.put(connection.buffer.data(), code));
      if (code && code != beast_http::error::need_more) {
        outcome.error = str_cat("malformed: no HTTP answer: ", code.message());
        co_return true;
      }
    }
    outcome.error = answer.final_error();
    if (answer.is_done() && answer.keep_alive() && connection.buffer.size() == 0 &&
        flight.cut.empty()) {
      idle_.push_back(std::move(flight.connection));
    }
    co_return true;
  }

  std::string closed_error() const {
    return str_cat("closed: ", where_, " closed the connection before the answer was whole");
  }

  asio::io_context& loop_;
  const EndpointOptions endpoint_;
  const json extra_;
  const std::string host_;
  const std::string port_;
  std::string prefix_;
  const std::string where_;
  const std::string timeout_error_;
  tcp::endpoint address_;
  std::vector<std::string> messages_;              // head and body of each request
  std::vector<std::unique_ptr<Connection>> idle_;  // the last was used last
  std::set<Flight*> flights_;
  Deadlines deadlines_;
  Deadlines connect_deadlines_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> make_http_transport(asio::io_context& loop,
                                                               const EndpointOptions& endpoint,
                                                               Duration timeout) {
  RAG_ASSIGN_OR_RETURN(const http::Client server, http::Client::create(endpoint.url));
  const json extra =
      endpoint.extra.empty() ? json::object() : json::parse(endpoint.extra, nullptr, false);
  if (!extra.is_object()) {
    return absl::InvalidArgumentError("extra members of a request: must be a JSON object");
  }
  return std::make_unique<HttpTransport>(loop, server, endpoint, extra, timeout);
}

}  // namespace ragcache::loadgen
