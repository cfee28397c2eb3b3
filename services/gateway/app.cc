#include "services/gateway/app.h"

#include <chrono>
#include <utility>

#include "common/clock.h"
#include "common/http/router.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/chat.h"
#include "services/gateway/documents.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/status_handlers.h"

namespace ragcache::gateway {
namespace {

http::Router routes(Services& services) {
  using Handle = boost::asio::awaitable<void> (*)(Services&, http::Exchange&);
  constexpr struct {
    const char* method;
    const char* pattern;
    Handle handle;
  } kRoutes[] = {
      {"POST", "/v1/chat/completions", handle_chat},
      {"GET", "/v1/models", handle_models},
      {"GET", "/v1/models/{model}", handle_model},
      {"POST", "/v1/documents", handle_upload},
      {"GET", "/v1/documents", handle_list},
      {"GET", "/v1/documents/{id}", handle_get},
      {"DELETE", "/v1/documents/{id}", handle_delete},
      {"POST", "/v1/search", handle_search},
      {"GET", "/livez", handle_livez},
      {"GET", "/readyz", handle_readyz},
      {"GET", "/metrics", handle_metrics},
      {"GET", "/admin/cache", handle_cache},
      {"POST", "/admin/cache/clear", handle_clear_cache},
  };
  http::Router router;
  for (const auto& route : kRoutes) {
    router.add(route.method, route.pattern,
               [&services, handle = route.handle](http::Exchange& exchange) {
                 return handle(services, exchange);
               });
  }
  return router;
}

http::Observer observer(Services& services) {
  return {
      .request_done =
          [&services](const http::RequestRecord& record) {
            services.metrics.count_request(record.request.route, record.status);
            log::debug("request", {{"request_id", record.request.id},
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

absl::StatusOr<std::unique_ptr<App>> App::start(Config config, metrics::Registry registry) {
  if (config.default_top_k > config.max_top_k) {
    return absl::InvalidArgumentError(str_cat("default_top_k: ", config.default_top_k,
                                              " is above max_top_k, ", config.max_top_k));
  }
  const absl::StatusOr<http::HostPort> listen = http::parse_host_port(config.listen);
  if (!listen.ok()) {
    return absl::InvalidArgumentError(str_cat("listen: ", listen.status().message()));
  }
  http::ServerConfig server_config = {.host = listen->host,
                                      .port = listen->port,
                                      .threads = config.http_threads,
                                      .limits = config.limits,
                                      .format_error = error_response};
  std::unique_ptr<App> app(
      new App(std::make_unique<Services>(std::move(config), std::move(registry))));
  server_config.observer = observer(*app->services_);
  RAG_ASSIGN_OR_RETURN(app->server_,
                       http::Server::start(std::move(server_config), routes(*app->services_)));
  log::info("gateway listens", {{"address", app->address()}});
  return app;
}

App::~App() { stop(); }

void App::stop() {
  if (server_ == nullptr) return;
  server_->stop(std::chrono::milliseconds(services_->config.stop_grace_ms));
}

}  // namespace ragcache::gateway
