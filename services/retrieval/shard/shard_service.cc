#include "services/retrieval/shard/shard_service.h"

#include <utility>

#include "common/rpc/status.h"
#include "common/strings.h"
#include "services/retrieval/shard/wire.h"

namespace ragcache::retrieval {
namespace {

// The shard's work has no deadline of its own: the caller's ends the call.
constexpr Duration kNoTimeout = Duration::max();

}  // namespace

// One call's place among those allowed, and whether its caller is still there. gRPC owns the
// object from its construction until OnDone().
class ShardService::Call final : public grpc::ServerUnaryReactor {
 public:
  explicit Call(std::atomic<int>& calls) : calls_(calls), number_(++calls) {}
  ~Call() override { --calls_; }

  // False if there are too many: the call has ended then.
  bool enter() {
    if (number_ <= kCallsMax) return true;
    finish(absl::ResourceExhaustedError(
        str_cat("too many calls at once: at most ", kCallsMax, "; try again later")));
    return false;
  }

  void finish(const absl::Status& status) { Finish(to_grpc_status(status)); }
  std::stop_token stop() { return stop_.get_token(); }

  // Ends the call with what the shard gave, after `fill(value)`.
  template <typename T, typename Fill>
  Shard::Done<T> done(Fill fill) {
    return [this, fill = std::move(fill)](absl::StatusOr<T> value) mutable {
      if (value.ok()) fill(*value);
      finish(value.status());
    };
  }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::atomic<int>& calls_;
  const int number_;
  std::stop_source stop_;
};

grpc::ServerUnaryReactor* ShardService::BindShard(grpc::CallbackServerContext*,
                                                  const v1::BindShardRequest* request,
                                                  v1::BindShardResponse* response) {
  auto* call = new Call(calls_);
  if (!call->enter()) return call;
  const absl::StatusOr<ShardBinding> binding = to_binding(*request);
  if (!binding.ok()) {
    call->finish(binding.status());
    return call;
  }
  shard_.bind(
      *binding, kNoTimeout,
      call->done<std::vector<IndexState>>([response](const std::vector<IndexState>& indexes) {
        for (const IndexState& index : indexes) {
          to_message(index, *response->add_indexes());
        }
      }));
  return call;
}

grpc::ServerUnaryReactor* ShardService::CreateIndex(grpc::CallbackServerContext*,
                                                    const v1::CreateIndexRequest* request,
                                                    v1::CreateIndexResponse* response) {
  auto* call = new Call(calls_);
  if (!call->enter()) return call;
  absl::StatusOr<IndexSpec> spec = to_spec(request->spec());
  if (!spec.ok()) {
    call->finish(spec.status());
    return call;
  }
  shard_.create(to_key(request->key()), std::make_shared<const IndexSpec>(*std::move(spec)),
                kNoTimeout, call->done<IndexState>([response](const IndexState& index) {
                  to_message(index, *response->mutable_index());
                }));
  return call;
}

grpc::ServerUnaryReactor* ShardService::DropIndex(grpc::CallbackServerContext*,
                                                  const v1::DropIndexRequest* request,
                                                  v1::DropIndexResponse*) {
  auto* call = new Call(calls_);
  if (!call->enter()) return call;
  shard_.drop(to_key(request->key()), kNoTimeout, call->done<IndexState>([](const IndexState&) {}));
  return call;
}

grpc::ServerUnaryReactor* ShardService::ApplyChanges(grpc::CallbackServerContext*,
                                                     const v1::ApplyChangesRequest* request,
                                                     v1::ApplyChangesResponse* response) {
  auto* call = new Call(calls_);
  if (!call->enter()) return call;
  shard_.apply(to_batch(*request), kNoTimeout,
               call->done<IndexState>([response](const IndexState& index) {
                 to_message(index, *response->mutable_index());
               }));
  return call;
}

grpc::ServerUnaryReactor* ShardService::SearchIndex(grpc::CallbackServerContext*,
                                                    const v1::SearchIndexRequest* request,
                                                    v1::SearchIndexResponse* response) {
  auto* call = new Call(calls_);
  if (!call->enter()) return call;
  absl::StatusOr<ShardQuery> query = to_query(*request);
  if (!query.ok()) {
    call->finish(query.status());
    return call;
  }
  shard_.search(
      std::make_shared<const ShardQuery>(*std::move(query)), kNoTimeout, call->stop(),
      call->done<ShardHits>([response](const ShardHits& hits) { to_message(hits, *response); }));
  return call;
}

}  // namespace ragcache::retrieval
