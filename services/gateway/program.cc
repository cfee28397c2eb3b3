#include "services/gateway/program.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "services/gateway/app.h"
#include "services/gateway/config.h"

namespace ragcache::gateway {

Program gateway_program() {
  auto config = std::make_shared<Config>();
  config->controller_address = "127.0.0.1:9100";
  config->retrieval_address = "127.0.0.1:9200";
  config->grpc_listen = "127.0.0.1:8081";
  Program program;
  program.name = "ragcache-gateway";
  program.summary = "The front: OpenAI-compatible HTTP and gRPC";
  program.examples =
      "  ragcache-gateway --listen 0.0.0.0:8080\n"
      "  ragcache-gateway --controller-address controller:9100 --retrieval-address retrieval:9200";
  program.add_options = [config](OptionTable& table) {
    add_options(table, *config);
    add_wiring_options(table, *config);
  };
  program.start = [config](metrics::Registry registry) -> absl::StatusOr<RunningService> {
    RAG_ASSIGN_OR_RETURN(std::shared_ptr<App> app, App::start(*config, std::move(registry)));
    RunningService service;
    service.ready = [app](const RunningService::Ready& done) { done(absl::OkStatus()); };
    service.stop = [app] { app->stop(); };
    return service;
  };
  return program;
}

}  // namespace ragcache::gateway
