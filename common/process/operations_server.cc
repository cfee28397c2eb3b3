#include "common/process/operations_server.h"

#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/http/error.h"
#include "common/http/event.h"
#include "common/http/server.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

using boost::asio::awaitable;

constexpr std::chrono::milliseconds kStopGrace{500};

http::Response json_response(unsigned status, const nlohmann::ordered_json& value) {
  http::Response response;
  response.status = status;
  response.body = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return response;
}

http::Response error_response(const absl::Status& status) {
  return json_response(http::http_status(status),
                       {{"error", {{"message", std::string(status.message())}}}});
}

}  // namespace

struct OperationsServer::State {
  metrics::Registry registry;
  std::mutex mutex;
  std::function<void(RunningService::Ready)> ready;  // guarded by mutex, as the next
  std::string phase = "starting";                    // why not ready, where nobody can be asked
  std::unique_ptr<http::Server> server;

  awaitable<absl::Status> ask(http::Exchange& exchange) {
    std::function<void(RunningService::Ready)> ready_now;
    std::string phase_now;
    {
      const std::lock_guard lock(mutex);
      ready_now = ready;
      phase_now = phase;
    }
    if (!ready_now) co_return absl::UnavailableError(phase_now);
    struct Answer {
      explicit Answer(const boost::asio::any_io_executor& executor) : come(executor) {}
      http::Event come;
      absl::Status status = absl::UnavailableError("the service does not answer");
    };
    auto answer = std::make_shared<Answer>(exchange.executor());
    ready_now([answer, executor = boost::asio::prefer(
                           exchange.executor(), boost::asio::execution::outstanding_work.tracked)](
                  absl::Status status) mutable {
      boost::asio::post(executor, [answer = std::move(answer), status = std::move(status)] {
        answer->status = status;
        answer->come.set();
      });
    });
    // A service that is being stopped may never answer; the server's stop ends the wait.
    http::Exchange::DisconnectGuard guard(exchange, [&answer] { answer->come.set(); });
    co_await answer->come.wait();
    co_return answer->status;
  }

  awaitable<void> livez(http::Exchange& exchange) {
    http::Response response = json_response(200, {{"status", "ok"}});
    co_await exchange.respond(std::move(response));
  }

  awaitable<void> readyz(http::Exchange& exchange) {
    const absl::Status status = co_await ask(exchange);
    nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
    if (!status.ok()) reasons.push_back(std::string(status.message()));
    nlohmann::ordered_json value = {{"ready", status.ok()}, {"reasons", std::move(reasons)}};
    http::Response response = json_response(status.ok() ? 200 : 503, value);
    co_await exchange.respond(std::move(response));
  }

  awaitable<void> metrics(http::Exchange& exchange) {
    http::Response response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics::to_text(*registry);
    co_await exchange.respond(std::move(response));
  }
};

absl::StatusOr<std::unique_ptr<OperationsServer>> OperationsServer::start(
    const std::string& address, metrics::Registry registry) {
  const absl::StatusOr<http::HostPort> listen = http::parse_host_port(address);
  if (!listen.ok()) {
    return absl::InvalidArgumentError(str_cat("http_listen: ", listen.status().message()));
  }
  auto state = std::make_unique<State>();
  State* const own = state.get();
  own->registry = std::move(registry);
  http::Router router;
  router.add("GET", "/livez", [own](http::Exchange& exchange) { return own->livez(exchange); });
  router.add("GET", "/readyz", [own](http::Exchange& exchange) { return own->readyz(exchange); });
  router.add("GET", "/metrics", [own](http::Exchange& exchange) { return own->metrics(exchange); });
  RAG_ASSIGN_OR_RETURN(
      own->server, http::Server::start(
                       {.host = listen->host, .port = listen->port, .format_error = error_response},
                       std::move(router)));
  return std::unique_ptr<OperationsServer>(new OperationsServer(std::move(state)));
}

OperationsServer::OperationsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

OperationsServer::~OperationsServer() { state_->server->stop(kStopGrace); }

const std::string& OperationsServer::address() const { return state_->server->address(); }

void OperationsServer::set_service(std::function<void(RunningService::Ready)> ready) {
  const std::lock_guard lock(state_->mutex);
  state_->ready = std::move(ready);
}

void OperationsServer::set_stopping() {
  const std::lock_guard lock(state_->mutex);
  state_->ready = nullptr;
  state_->phase = "stopping";
}

}  // namespace ragcache
