#include "services/controller/app.h"

#include "common/actor/thread_runtime.h"
#include "common/model/model_files.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "services/controller/clients/worker_link.h"
#include "services/controller/service.h"

namespace ragcache::controller {

struct App::Parts {
  explicit Parts(int actor_threads) : runtime(actor_threads) {}

  // Destroyed last to first: the server's calls use the actors, the actors the clients and metrics.
  metrics::Registry registry;
  ThreadRuntime runtime;
  std::unique_ptr<RetrievalClient> retrieval;
  ActorRef<GroupActor> group;
  ActorRef<WorkerLink> link;
  std::unique_ptr<Service> service;
  std::unique_ptr<RpcServer> server;
};

absl::StatusOr<std::unique_ptr<App>> App::start(const Config& config, metrics::Registry registry) {
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(config.model));
  RAG_ASSIGN_OR_RETURN(auto tokenizer, files->tokenizer());
  RAG_ASSIGN_OR_RETURN(auto format, files->prompt_format(config.chat_template));
  auto prefill_cost = std::make_shared<PrefillCost>(PrefillCost::unmeasured());
  PolicyOptions policy_options;
  policy_options.remember = config.cache_history;
  policy_options.prefill_seconds = [prefill_cost](uint32_t cached_tokens, uint32_t new_tokens) {
    return prefill_cost->seconds(cached_tokens, new_tokens);
  };
  RAG_ASSIGN_OR_RETURN(auto policy, make_policy(config.cache_policy, policy_options));

  const Digest model = files->fingerprint();

  auto parts = std::make_unique<Parts>(static_cast<int>(config.actor_threads));
  parts->registry = registry;
  parts->retrieval = std::make_unique<RetrievalClient>(make_channel(config.retrieval_address));
  auto metrics = std::make_shared<Metrics>(*registry);
  // The start time orders the controllers of a group: the last one started has the worker.
  const auto start = deadline_in(Duration::zero()).time_since_epoch();
  const auto term =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(start).count());
  parts->group = parts->runtime.spawn<GroupActor>(config, term, std::move(policy),
                                                  std::move(prefill_cost), metrics);
  parts->link = parts->runtime.spawn<WorkerLink>(make_channel(config.worker_address), model,
                                                 WorkerLink::Group(parts->group));
  parts->link.send(WorkerLink::Connect{});

  auto dependencies = std::make_shared<RequestActor::Dependencies>(
      RequestActor::Dependencies{config, tokenizer, format, model, parts->retrieval->address(),
                                 GroupAddress(parts->group), metrics});
  parts->service = std::make_unique<Service>(parts->runtime, std::move(dependencies), parts->group,
                                             *parts->retrieval);
  grpc::Service* services[] = {parts->service.get()};
  RAG_ASSIGN_OR_RETURN(parts->server, RpcServer::start(config.listen, services));
  return std::unique_ptr<App>(new App(std::move(parts)));
}

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

App::~App() { stop(); }

void App::stop() {
  parts_->server->stop();
  parts_->runtime.stop();
}

void App::ready(std::function<void(absl::Status)> done) const {
  parts_->service->status([done = std::move(done)](const v1::GetStatusResponse& status) {
    done(status.ready() ? absl::OkStatus() : absl::UnavailableError(status.not_ready_reason()));
  });
}

void App::set_serving(bool serving) { parts_->server->set_serving(serving); }

const std::string& App::address() const { return parts_->server->address(); }

}  // namespace ragcache::controller
