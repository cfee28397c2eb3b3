#include "services/gateway/app.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/http/server.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/grpc/front.h"
#include "services/gateway/http/openai_error.h"
#include "services/gateway/http/routes.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {
namespace {

// Asked every few seconds by whoever watches: no line of the log each time.
bool is_probe(std::string_view route) {
  return route == "/livez" || route == "/readyz" || route == "/metrics";
}

http::Observer observer(Services& services) {
  return {
      .request_done =
          [&services](const http::RequestRecord& record) {
            services.metrics.count_request(record.request.route, record.status);
            const std::string_view trace = record.request.headers.get("traceparent");
            const auto write = is_probe(record.request.route) ? log::debug : log::info;
            write("request", {{"request_id", record.request.id},
                              {"traceparent", http::is_valid_trace_parent(trace) ? trace : ""},
                              {"method", record.request.method},
                              {"route", record.request.route},
                              {"status", record.status},
                              {"bytes", record.response_bytes},
                              {"seconds", to_seconds(record.duration)}});
          },
      .connections = [&services](int change) { services.metrics.connections.Increment(change); },
      .streamed =
          [&services](size_t bytes) {
            services.metrics.streamed_bytes.Increment(static_cast<double>(bytes));
          },
      .fault =
          [](std::string_view what) {
            log::error("http", {{"fault", what}});
          },
  };
}

}  // namespace

App::App(std::unique_ptr<Services> services) : services_(std::move(services)) {}
App::~App() { stop(); }

absl::StatusOr<std::unique_ptr<App>> App::start(Config config, metrics::Registry registry) {
  if (config.default_top_k > config.max_top_k) {
    return absl::InvalidArgumentError(str_cat("default_top_k: ", config.default_top_k,
                                              " is above max_top_k, ", config.max_top_k));
  }
  const absl::StatusOr<http::HostPort> listen = http::parse_host_port(config.listen);
  if (!listen.ok()) {
    return absl::InvalidArgumentError(str_cat("listen: ", listen.status().message()));
  }
  RAG_ASSIGN_OR_RETURN(ApiKeys api_keys, ApiKeys::load(config.api_keys_file));
  http::ServerConfig server_config = {.host = listen->host,
                                      .port = listen->port,
                                      .threads = config.http_threads,
                                      .limits = config.limits,
                                      .format_error = error_response};
  std::unique_ptr<App> app(new App(
      std::make_unique<Services>(std::move(config), std::move(api_keys), std::move(registry))));
  Services& services = *app->services_;
  if (!services.config.grpc_listen.empty()) {
    RAG_ASSIGN_OR_RETURN(app->grpc_, GrpcFront::start(services));
    log::info("gateway listens for gRPC", {{"address", app->grpc_address()}});
  }
  server_config.observer = observer(services);
  RAG_ASSIGN_OR_RETURN(app->server_,
                       http::Server::start(std::move(server_config), make_routes(services)));
  log::info("gateway listens", {{"address", app->address()}});
  return app;
}

void App::stop() {
  const auto grace = std::chrono::milliseconds(services_->config.stop_grace_ms);
  const TimePoint end = steady_now() + grace;
  if (server_ != nullptr) server_->stop(grace);
  if (grpc_ != nullptr) grpc_->stop(std::max(end - steady_now(), Duration(0)));
}

const std::string& App::address() const { return server_->address(); }
uint16_t App::port() const { return server_->port(); }

std::string App::grpc_address() const { return grpc_ == nullptr ? "" : grpc_->address(); }

}  // namespace ragcache::gateway
