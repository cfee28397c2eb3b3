#include "common/http/server.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/file_limit.h"
#include "common/http/connection.h"
#include "common/http/error.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// After accept() failed (no file descriptors left, most likely) it is tried again so much later.
constexpr std::chrono::milliseconds kAcceptRetry{100};

// Descriptors of the process besides the connections: files, sockets to other services.
constexpr size_t kOtherFiles = 256;

std::string join(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? str_cat(host, ":", port)
                                             : str_cat("[", host, "]:", port);
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerConfig config, Router router)
      : config_(std::move(config)),
        router_(std::move(router)),
        work_(asio::make_work_guard(io_)),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {}

  absl::StatusOr<uint16_t> listen() {
    error_code code;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(config_.host, str_cat(config_.port), tcp::resolver::passive, code);
    if (code || found.empty()) {
      return absl::InvalidArgumentError(
          str_cat("host ", config_.host, " has no address: ", code.message()));
    }
    const tcp::endpoint endpoint = *found.begin();
    acceptor_.open(endpoint.protocol(), code);
    if (!code) acceptor_.set_option(tcp::acceptor::reuse_address(true), code);
    if (!code) acceptor_.bind(endpoint, code);
    if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
    const std::string wanted = join(config_.host, config_.port);
    if (code == asio::error::address_in_use) {
      return absl::FailedPreconditionError(
          str_cat("port in use: another process listens on ", wanted));
    }
    if (code) {
      return absl::FailedPreconditionError(
          str_cat("cannot listen on ", wanted, ": ", code.message()));
    }
    return acceptor_.local_endpoint(code).port();
  }

  void run() {
    asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
    for (unsigned i = 0; i < config_.threads; ++i) {
      threads_.emplace_back([this] { io_.run(); });
    }
  }

  void stop(std::chrono::milliseconds grace) {
    if (std::exchange(stopped_, true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      tell_all(&Connection::finish_soon);
      if (!all_closed_.wait_for(lock, grace, [this] { return connections_.empty(); })) {
        tell_all(&Connection::abort);
        all_closed_.wait(lock, [this] { return connections_.empty(); });
      }
    }
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  // REQUIRES: mutex_ held.
  void tell_all(void (Connection::*what)()) {
    for (const auto& [number, connection] : connections_) {
      asio::post(connection->executor(), [connection, what] { (connection.get()->*what)(); });
    }
  }

  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      error_code code;
      tcp::socket socket = co_await acceptor_.async_accept(
          asio::make_strand(io_), asio::redirect_error(asio::use_awaitable, code));
      if (!acceptor_.is_open()) break;
      if (code) {
        config_.observer.fault(str_cat("accept: ", code.message()));
        retry_.expires_after(kAcceptRetry);
        co_await retry_.async_wait(asio::redirect_error(asio::use_awaitable, code));
        continue;
      }
      admit(std::move(socket));
    }
  }

  void admit(tcp::socket socket) {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (connections_.size() >= config_.limits.max_connections) {
      turn_away(socket);
      return;
    }
    const uint64_t number = next_number_++;
    auto connection = std::make_shared<Connection>(std::move(socket), config_, router_);
    connections_.emplace(number, connection);
    config_.observer.connections(1);
    asio::co_spawn(
        connection->executor(), [connection] { return connection->run(); },
        [this, connection, number](std::exception_ptr failure) {
          if (failure != nullptr) config_.observer.fault("a connection ended by an exception");
          config_.observer.connections(-1);
          std::lock_guard lock(mutex_);
          connections_.erase(number);
          if (connections_.empty()) all_closed_.notify_all();
        });
  }

  // One attempt that never blocks: a client that does not take it sees the connection close.
  void turn_away(tcp::socket& socket) {
    const Response response =
        config_.format_error(error(503, str_cat("all ", config_.limits.max_connections,
                                                " connections of the server are in use")));
    const std::string answer =
        str_cat("HTTP/1.1 503 ", reason_phrase(503), "\r\nContent-Type: ", response.content_type,
                "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: ", response.body.size(),
                "\r\n\r\n", response.body);
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(answer), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  const ServerConfig config_;
  const Router router_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;  // on a strand of its own, as is retry_
  asio::steady_timer retry_;
  std::vector<std::thread> threads_;
  bool stopped_ = false;

  std::mutex mutex_;
  std::condition_variable all_closed_;
  // Guarded by mutex_.
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;
  uint64_t next_number_ = 0;
  bool stopping_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<Server>> Server::start(ServerConfig config, Router router) {
  RAG_CHECK(config.format_error != nullptr);
  const std::string host = config.host;
  raise_file_limit(config.limits.max_connections + kOtherFiles);
  auto impl = std::make_unique<Impl>(std::move(config), std::move(router));
  RAG_ASSIGN_OR_RETURN(const uint16_t port, impl->listen());
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  server->port_ = port;
  server->address_ = join(host, port);
  server->impl_->run();
  return server;
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::stop(std::chrono::milliseconds grace) { impl_->stop(grace); }

}  // namespace ragcache::http
