#include "common/http/client.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kChunkBytes = 64 << 10;
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

// One request and its answer. Everything runs in run(), on the caller's thread.
class Call {
 public:
  Call(const ClientRequest& request, const std::string& host, const std::string& port,
       const std::string& prefix, const ClientOptions& options, const Client::OnBytes& on_bytes)
      : request_(request),
        host_(host),
        port_(port),
        target_(prefix + request.target),
        options_(options),
        on_bytes_(on_bytes),
        socket_(io_),
        timer_(io_) {}

  absl::StatusOr<Response> run() {
    asio::co_spawn(io_, exchange(), asio::detached);
    io_.run();
    RAG_RETURN_IF_ERROR(status_);
    return std::move(response_);
  }

 private:
  asio::awaitable<void> exchange() {
    status_ = co_await connect();
    if (status_.ok()) {
      asio::co_spawn(io_, upload(), asio::detached);
      absl::Status received = co_await download();
      // What the caller's source or sink reported says more than the broken exchange after it.
      if (status_.ok()) status_ = std::move(received);
    }
    close();
  }

  asio::awaitable<absl::Status> connect() {
    const std::string where = str_cat(host_, ":", port_);
    expire_after(options_.connect_timeout_ms);
    error_code code;
    tcp::resolver resolver(io_);
    auto found = co_await resolver.async_resolve(host_, port_,
                                                 asio::redirect_error(asio::use_awaitable, code));
    if (code) {
      co_return absl::UnavailableError(str_cat("no address for ", where, ": ", code.message()));
    }
    co_await asio::async_connect(socket_, found, asio::redirect_error(asio::use_awaitable, code));
    if (expired_) {
      co_return absl::UnavailableError(
          str_cat("no connection to ", where, " within ", options_.connect_timeout_ms, " ms"));
    }
    if (code == asio::error::connection_refused) {
      co_return absl::UnavailableError(
          str_cat("connection refused at ", where, "; is `ragcache serve` running?"));
    }
    if (code) {
      co_return absl::UnavailableError(str_cat("cannot connect to ", where, ": ", code.message()));
    }
    connected_ = true;
    socket_.set_option(tcp::no_delay(true), code);
    co_return absl::OkStatus();
  }

  // A failed write is no error of its own: a server may answer early and close.
  asio::awaitable<void> upload() {
    std::string head = str_cat(request_.method, " ", target_, " HTTP/1.1\r\nHost: ", host_, ":",
                               port_, "\r\nConnection: close\r\n");
    for (const auto& [name, value] : request_.headers) {
      head += str_cat(name, ": ", value, "\r\n");
    }
    if (request_.body_source != nullptr) {
      head.append("Transfer-Encoding: chunked\r\n\r\n");
    } else if (!request_.body.empty() || request_.method != "GET") {
      head += str_cat("Content-Length: ", request_.body.size(), "\r\n\r\n", request_.body);
    } else {
      head.append("\r\n");
    }
    bool open = co_await send(head);
    while (open && request_.body_source != nullptr) {
      absl::StatusOr<std::string> piece = request_.body_source();
      if (!piece.ok()) {
        status_ = piece.status();
        close();
        co_return;
      }
      const bool last = piece->empty();
      const std::string chunk = absl::StrFormat("%x\r\n%s\r\n", piece->size(), *piece);
      open = co_await send(chunk);
      if (last) co_return;
    }
  }

  asio::awaitable<bool> send(const std::string& bytes) {
    error_code code;
    size_t sent = 0;
    while (!code && sent < bytes.size()) {
      expire_after(options_.idle_timeout_ms);
      sent +=
          co_await socket_.async_write_some(asio::buffer(bytes.data() + sent, bytes.size() - sent),
                                            asio::redirect_error(asio::use_awaitable, code));
    }
    co_return !code;
  }

  asio::awaitable<absl::Status> download() {
    beast_http::response_parser<beast_http::buffer_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    parser.body_limit(boost::none);
    if (request_.method == "HEAD") parser.skip(true);
    boost::beast::flat_buffer buffer;
    error_code code;
    expire_after(options_.idle_timeout_ms);
    co_await beast_http::async_read_header(socket_, buffer, parser,
                                           asio::redirect_error(asio::use_awaitable, code));
    if (code) co_return broken(code);
    response_.status = parser.get().result_int();
    for (const auto& field : parser.get()) {
      response_.headers.add(std::string(field.name_string()), std::string(field.value()));
    }
    response_.content_type = std::string(response_.headers.get("content-type"));
    std::vector<char> chunk(kChunkBytes);
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = chunk.data();
      body.size = chunk.size();
      expire_after(options_.idle_timeout_ms);
      co_await beast_http::async_read_some(socket_, buffer, parser,
                                           asio::redirect_error(asio::use_awaitable, code));
      const size_t filled = chunk.size() - body.size;
      if (filled > 0) {
        absl::Status taken = on_bytes_(response_, std::string_view(chunk.data(), filled));
        if (!taken.ok()) co_return taken;
      }
      if (code && code != beast_http::error::need_buffer) co_return broken(code);
    }
    co_return absl::OkStatus();
  }

  absl::Status broken(const error_code& code) const {
    const std::string where = str_cat(host_, ":", port_);
    if (expired_) {
      return absl::DeadlineExceededError(
          str_cat("no byte from ", where, " for ", options_.idle_timeout_ms, " ms"));
    }
    if (code == beast_http::error::end_of_stream || code == beast_http::error::partial_message ||
        code == asio::error::eof || code == asio::error::connection_reset) {
      return absl::UnavailableError(
          str_cat(where, " closed the connection before its answer was whole"));
    }
    return absl::UnavailableError(str_cat("answer of ", where, ": ", code.message()));
  }

  void expire_after(int64_t timeout_ms) {
    if (!socket_.is_open() && connected_) return;  // closed: nothing is waited for any more
    timer_.expires_after(std::chrono::milliseconds(timeout_ms));
    timer_.async_wait([this](const error_code& code) {
      if (code || timer_.expiry() > std::chrono::steady_clock::now()) return;
      expired_ = true;
      close();
    });
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
  }

  const ClientRequest& request_;
  const std::string& host_;
  const std::string& port_;
  const std::string target_;
  const ClientOptions& options_;
  const Client::OnBytes& on_bytes_;
  asio::io_context io_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  bool connected_ = false;
  bool expired_ = false;
  absl::Status status_;
  Response response_;
};

}  // namespace

Client::Client(std::string host, std::string port, std::string prefix, ClientOptions options)
    : host_(std::move(host)),
      port_(std::move(port)),
      prefix_(std::move(prefix)),
      options_(options) {}

absl::StatusOr<Client> Client::create(std::string_view url, ClientOptions options) {
  const std::string_view whole = url;
  if (url.starts_with("https://")) {
    return absl::InvalidArgumentError(str_cat("url ", whole, ": TLS is not supported"));
  }
  if (constexpr std::string_view kScheme = "http://"; url.starts_with(kScheme)) {
    url.remove_prefix(kScheme.size());
  }
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view prefix = url.substr(slash);
  if (prefix.ends_with('/')) prefix.remove_suffix(1);
  std::string authority(url.substr(0, slash));
  if (authority.rfind(':') == std::string::npos) authority += ":80";
  absl::StatusOr<HostPort> server = parse_host_port(authority);
  if (!server.ok() || server->port == 0) {
    return absl::InvalidArgumentError(
        str_cat("url ", whole, ": must be http://host:port with a port of 1 to 65535"));
  }
  return Client(server->host, std::to_string(server->port), std::string(prefix), options);
}

absl::StatusOr<Response> Client::fetch(const ClientRequest& request) {
  std::string body;
  absl::StatusOr<Response> response =
      stream(request, [&](const Response&, std::string_view bytes) -> absl::Status {
        if (body.size() + bytes.size() > options_.max_response_bytes) {
          return absl::ResourceExhaustedError(
              str_cat("the answer is longer than ", options_.max_response_bytes, " bytes"));
        }
        body.append(bytes);
        return absl::OkStatus();
      });
  if (response.ok()) response->body = std::move(body);
  return response;
}

absl::StatusOr<Response> Client::stream(const ClientRequest& request, const OnBytes& on_bytes) {
  Call call(request, host_, port_, prefix_, options_, on_bytes);
  return call.run();
}

}  // namespace ragcache::http
