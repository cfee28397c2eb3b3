#include "services/worker/program.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "services/worker/app.h"
#include "services/worker/config.h"

namespace ragcache::worker {

Program worker_program() {
  auto config = std::make_shared<Config>();
  config->listen = "127.0.0.1:9300";
  Program program;
  program.name = "ragcache-worker";
  program.summary = "One worker group: the language model, its KV memory, continuous batching";
  program.examples =
      "  ragcache-worker --model model.gguf\n"
      "  ragcache-worker --model model.gguf --listen 0.0.0.0:9300 --kv-memory-mib 8192\n"
      "  ragcache-worker --config worker.yaml --print-config";
  program.add_options = [config](OptionTable& table) {
    add_options(table, *config);
    add_wiring_options(table, *config);
  };
  program.http_listen = "127.0.0.1:9301";
  program.start = [config](metrics::Registry registry) -> absl::StatusOr<RunningService> {
    RAG_ASSIGN_OR_RETURN(std::shared_ptr<App> app, App::start(*config, std::move(registry)));
    RunningService service;
    service.ready = [app](const RunningService::Ready& done) { done(absl::OkStatus()); };
    service.stop = [app] { app->stop(); };
    return service;
  };
  return program;
}

}  // namespace ragcache::worker
