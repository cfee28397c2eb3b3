#include "services/controller/program.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "services/controller/app.h"
#include "services/controller/config.h"

namespace ragcache::controller {

Program controller_program() {
  auto config = std::make_shared<Config>();
  config->listen = "127.0.0.1:9100";
  config->worker_address = "127.0.0.1:9300";
  config->retrieval_address = "127.0.0.1:9200";
  Program program;
  program.name = "ragcache-controller";
  program.summary = "The brain: prompts, the knowledge tree, the queue, the ledger of blocks";
  program.examples =
      "  ragcache-controller --model model.gguf\n"
      "  ragcache-controller --model model.gguf --worker-address gpu-1:9300 \\\n"
      "      --retrieval-address retrieval:9200 --listen 0.0.0.0:9100";
  program.add_options = [config](OptionTable& table) {
    add_options(table, *config);
    add_wiring_options(table, *config);
  };
  program.http_listen = "127.0.0.1:9101";
  program.start = [config](metrics::Registry registry) -> absl::StatusOr<RunningService> {
    RAG_ASSIGN_OR_RETURN(std::shared_ptr<App> app, App::start(*config, std::move(registry)));
    RunningService service;
    service.ready = [app](RunningService::Ready done) { app->ready(std::move(done)); };
    service.set_serving = [app](bool serving) { app->set_serving(serving); };
    service.stop = [app] { app->stop(); };
    return service;
  };
  return program;
}

}  // namespace ragcache::controller
