#include "services/retrieval/program.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "services/retrieval/app.h"
#include "services/retrieval/config.h"

namespace ragcache::retrieval {

Program retrieval_program() {
  auto config = std::make_shared<Config>();
  config->listen = "127.0.0.1:9200";
  Program program;
  program.name = "ragcache-retrieval";
  program.summary = "Documents, embeddings and vector search";
  program.examples =
      "  ragcache-retrieval --state-dir state --model model.gguf \\\n"
      "      --embedding-model all-minilm-l6-v2\n"
      "  ragcache-retrieval --role shard --shard-index 1 --shard-count 2 --listen 127.0.0.1:9211 "
      "\\\n"
      "      --state-dir shard1\n"
      "  ragcache-retrieval --role router --shards 'a:9210,b:9210;c:9211' --state-dir state \\\n"
      "      --model model.gguf --embedding-model all-minilm-l6-v2";
  program.add_options = [config](OptionTable& table) {
    add_options(table, *config, Models::kByRole);
    add_wiring_options(table, *config);
  };
  program.http_listen = "127.0.0.1:9201";
  program.start = [config](metrics::Registry registry) -> absl::StatusOr<RunningService> {
    RAG_ASSIGN_OR_RETURN(std::shared_ptr<App> app, App::start(*config, std::move(registry)));
    RunningService service;
    service.ready = [app](const RunningService::Ready& done) { done(app->ready()); };
    service.set_serving = [app](bool serving) { app->set_serving(serving); };
    service.stop = [app] { app->stop(); };
    return service;
  };
  return program;
}

}  // namespace ragcache::retrieval
