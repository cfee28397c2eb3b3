#include "services/controller/service.h"

#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "services/controller/validate.h"

namespace ragcache::controller {
namespace {

// One Answer call: the reactor that gRPC sees and the sink that the RequestActor writes to. Each
// keeps it alive as long as it needs it.
class AnswerCall : public grpc::ServerWriteReactor<v1::AnswerResponse> {
 public:
  explicit AnswerCall(std::shared_ptr<std::atomic<uint32_t>> open) : open_(std::move(open)) {}
  ~AnswerCall() override { open_->fetch_sub(1); }

  AnswerSink sink(std::shared_ptr<AnswerCall> self) {
    self_ = self;
    return AnswerSink::of_functions(
        [self](v1::AnswerResponse response) { self->write(std::move(response)); },
        [self](AnswerEnded ended) { self->end(ended.status); });
  }

  void set_actor(ActorRef<RequestActor> actor) {
    bool cancelled;
    {
      std::lock_guard lock(mutex_);
      actor_ = actor;
      cancelled = cancelled_;
    }
    if (cancelled) actor.send(ClientGone{});
  }

  void OnCancel() override {
    ActorRef<RequestActor> actor;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      actor = actor_;
    }
    if (actor) actor.send(ClientGone{});
  }

  void OnWriteDone(bool) override {
    std::lock_guard lock(mutex_);
    responses_.pop_front();
    next();
  }

  void OnDone() override { self_.reset(); }

 private:
  void write(v1::AnswerResponse response) {
    std::lock_guard lock(mutex_);
    responses_.push_back(std::move(response));
    if (responses_.size() == 1) next();
  }

  void end(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    end_ = to_grpc_status(status);
    if (responses_.empty()) next();
  }

  // REQUIRES: mutex_ is held and no write is in flight.
  void next() {
    if (!responses_.empty()) {
      StartWrite(&responses_.front());
    } else if (end_.has_value() && !std::exchange(finished_, true)) {
      Finish(*end_);
    }
  }

  const std::shared_ptr<std::atomic<uint32_t>> open_;
  std::shared_ptr<AnswerCall> self_;

  std::mutex mutex_;  // guards what follows
  ActorRef<RequestActor> actor_;
  bool cancelled_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> end_;
  // The front is being written. Bounded by the answer's length.
  std::deque<v1::AnswerResponse> responses_;
};

class Refusal : public grpc::ServerWriteReactor<v1::AnswerResponse> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(to_grpc_status(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

Service::Service(ActorRuntime& runtime,
                 std::shared_ptr<const RequestActor::Dependencies> dependencies,
                 ActorRef<GroupActor> group, const RetrievalClient& retrieval)
    : runtime_(runtime),
      dependencies_(std::move(dependencies)),
      group_(group),
      retrieval_(retrieval),
      open_requests_(std::make_shared<std::atomic<uint32_t>>(0)) {}

grpc::ServerWriteReactor<v1::AnswerResponse>* Service::Answer(grpc::CallbackServerContext* context,
                                                              const v1::AnswerRequest* request) {
  const uint32_t vocabulary = dependencies_->tokenizer->vocabulary_size();
  if (absl::Status status = validate(*request, vocabulary); !status.ok()) {
    return new Refusal(status);
  }
  const uint32_t limit = dependencies_->config.max_requests;
  if (open_requests_->fetch_add(1) >= limit) {
    open_requests_->fetch_sub(1);
    return new Refusal(absl::ResourceExhaustedError(
        absl::StrCat("max_requests: ", limit, " requests are open; try again later")));
  }
  auto call = std::make_shared<AnswerCall>(open_requests_);
  // Callers choose their ids, and may choose the same one twice.
  v1::AnswerRequest own = *request;
  own.set_request_id(absl::StrCat(request->request_id(), "/", calls_.fetch_add(1) + 1));
  auto actor = runtime_.spawn<RequestActor>(dependencies_, std::move(own), call->sink(call));
  actor.send(Start{steady_deadline(context->deadline())});
  call->set_actor(actor);
  return call.get();
}

grpc::ServerUnaryReactor* Service::GetStatus(grpc::CallbackServerContext* context,
                                             const v1::GetStatusRequest*,
                                             v1::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  status([reactor, response](v1::GetStatusResponse status) {
    *response = std::move(status);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

void Service::status(std::function<void(v1::GetStatusResponse)> done) const {
  auto response = std::make_shared<v1::GetStatusResponse>();
  auto with_group = [this, done = std::move(done), response](GroupStatus status) {
    response->set_ready(status.ready);
    if (!status.ready) {
      response->set_not_ready_reason(absl::StrCat("worker: ", status.not_ready_reason));
    }
    response->set_model_name(status.worker.model_name());
    response->set_context_tokens(status.worker.context_tokens());
    response->set_block_tokens(status.worker.block_tokens());
    *response->mutable_cache() = std::move(status.cache);
    response->set_running_requests(status.running);
    response->set_waiting_requests(status.waiting);
    // The answer may come when this is gone.
    retrieval_.get_info([dependencies = dependencies_, done, response](auto info) {
      auto not_ready = [response](const std::string& reason) {
        response->set_ready(false);
        response->set_not_ready_reason(reason);
      };
      const Digest& tokenizer = dependencies->tokenizer->fingerprint();
      if (!info.ok()) {
        not_ready(absl::StrCat("retrieval: ", std::string(info.status().message())));
      } else if (info->tokenizer_fingerprint() != std::string(tokenizer.begin(), tokenizer.end())) {
        not_ready("retrieval tokenises with another model than the controller's");
      } else {
        if (!info->ready()) {
          not_ready(absl::StrCat("retrieval: ", info->not_ready_reason()));
        }
        response->set_documents(info->documents());
        response->set_index_kind(info->index_kind());
      }
      done(std::move(*response));
    });
  };
  group_.send(GetGroupStatus{Address<GroupStatus>::of_functions(std::move(with_group))});
}

grpc::ServerUnaryReactor* Service::ClearCache(grpc::CallbackServerContext* context,
                                              const v1::ClearCacheRequest*,
                                              v1::ClearCacheResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  group_.send(ClearGroupCache{
      Address<CacheCleared>::of_functions([reactor, response](CacheCleared cleared) {
        response->set_cleared_nodes(cleared.nodes);
        response->set_cleared_tokens(cleared.tokens);
        response->set_kept_nodes(cleared.kept_nodes);
        reactor->Finish(grpc::Status::OK);
      })});
  return reactor;
}

grpc::ServerUnaryReactor* Service::GetCacheTree(grpc::CallbackServerContext* context,
                                                const v1::GetCacheTreeRequest* request,
                                                v1::GetCacheTreeResponse* response) {
  constexpr uint32_t kDefaultNodes = 10'000;
  constexpr uint32_t kMaxNodes = 100'000;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const uint32_t nodes = request->max_nodes() == 0 ? kDefaultNodes : request->max_nodes();
  if (nodes > kMaxNodes) {
    reactor->Finish(to_grpc_status(absl::InvalidArgumentError(
        absl::StrCat("max_nodes: is ", nodes, ", at most ", kMaxNodes))));
    return reactor;
  }
  group_.send(GetGroupTree{nodes, Address<v1::GetCacheTreeResponse>::of_functions(
                                      [reactor, response](v1::GetCacheTreeResponse tree) {
                                        *response = std::move(tree);
                                        reactor->Finish(grpc::Status::OK);
                                      })});
  return reactor;
}

}  // namespace ragcache::controller
