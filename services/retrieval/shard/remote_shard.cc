#include "services/retrieval/shard/remote_shard.h"

#include <functional>
#include <optional>
#include <utility>

#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "ragcache/retrieval/v1/shard.grpc.pb.h"
#include "services/retrieval/shard/wire.h"

namespace ragcache::retrieval {

struct RemoteShard::Stub {
  std::unique_ptr<v1::ShardService::Stub> calls;
};

namespace {

// Lives until gRPC and the stop token are done with it.
template <typename Request, typename Response>
struct Call {
  explicit Call(Duration timeout) { context.set_deadline(deadline_in(timeout)); }

  grpc::ClientContext context;
  Request request;
  Response response;
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

// What gRPC calls at the call's end: passes on the error, or what `read` makes of the response.
template <typename T, typename C, typename Read>
std::function<void(grpc::Status)> ending(std::shared_ptr<C> call, Shard::Done<T> done, Read read) {
  auto shared_done = std::make_shared<Shard::Done<T>>(std::move(done));
  return [call, shared_done, read](const grpc::Status& status) {
    call->on_stop.reset();
    if (!status.ok()) return (*shared_done)(from_grpc_status(status));
    (*shared_done)(read(call->response));
  };
}

}  // namespace

RemoteShard::RemoteShard(const std::string& address)
    : stub_(std::make_unique<Stub>(Stub{v1::ShardService::NewStub(make_channel(address))})) {}

RemoteShard::~RemoteShard() = default;

void RemoteShard::bind(const ShardBinding& binding, Duration timeout,
                       Done<std::vector<IndexState>> done) {
  auto call = std::make_shared<Call<v1::BindShardRequest, v1::BindShardResponse>>(timeout);
  to_message(binding, call->request);
  const auto read = [](const v1::BindShardResponse& response) {
    std::vector<IndexState> indexes;
    for (const auto& index : response.indexes()) indexes.push_back(to_state(index));
    return indexes;
  };
  stub_->calls->async()->BindShard(&call->context, &call->request, &call->response,
                                   ending(call, std::move(done), read));
}

void RemoteShard::create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec,
                         Duration timeout, Done<IndexState> done) {
  auto call = std::make_shared<Call<v1::CreateIndexRequest, v1::CreateIndexResponse>>(timeout);
  to_message(key, *call->request.mutable_key());
  to_message(*spec, *call->request.mutable_spec());
  const auto read = [](const v1::CreateIndexResponse& response) {
    return to_state(response.index());
  };
  stub_->calls->async()->CreateIndex(&call->context, &call->request, &call->response,
                                     ending(call, std::move(done), read));
}

void RemoteShard::drop(const IndexKey& key, Duration timeout, Done<IndexState> done) {
  auto call = std::make_shared<Call<v1::DropIndexRequest, v1::DropIndexResponse>>(timeout);
  to_message(key, *call->request.mutable_key());
  const auto read = [key](const v1::DropIndexResponse&) { return IndexState{.key = key}; };
  stub_->calls->async()->DropIndex(&call->context, &call->request, &call->response,
                                   ending(call, std::move(done), read));
}

void RemoteShard::apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) {
  auto call = std::make_shared<Call<v1::ApplyChangesRequest, v1::ApplyChangesResponse>>(timeout);
  to_message(batch, call->request);
  const auto read = [](const v1::ApplyChangesResponse& response) {
    return to_state(response.index());
  };
  stub_->calls->async()->ApplyChanges(&call->context, &call->request, &call->response,
                                      ending(call, std::move(done), read));
}

void RemoteShard::search(std::shared_ptr<const ShardQuery> query, Duration timeout,
                         std::stop_token stop, Done<ShardHits> done) {
  auto call = std::make_shared<Call<v1::SearchIndexRequest, v1::SearchIndexResponse>>(timeout);
  to_message(*query, call->request);
  // Before the call begins: its end may come at once.
  call->on_stop.emplace(std::move(stop), [context = &call->context] { context->TryCancel(); });
  const auto read = [](const v1::SearchIndexResponse& response) { return to_hits(response); };
  stub_->calls->async()->SearchIndex(&call->context, &call->request, &call->response,
                                     ending(call, std::move(done), read));
}

}  // namespace ragcache::retrieval
