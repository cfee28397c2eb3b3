#pragma once

#include <atomic>

#include "ragcache/retrieval/v1/shard.grpc.pb.h"
#include "services/retrieval/shard/local_shard.h"

namespace ragcache::retrieval {

// ShardService over a LocalShard. Calls must have ended (the server is stopped) before either goes.
class ShardService final : public v1::ShardService::CallbackService {
 public:
  // Calls being worked on or waiting; more end as RESOURCE_EXHAUSTED.
  static constexpr int kCallsMax = 1024;

  explicit ShardService(LocalShard& shard) : shard_(shard) {}

  grpc::ServerUnaryReactor* BindShard(grpc::CallbackServerContext* context,
                                      const v1::BindShardRequest* request,
                                      v1::BindShardResponse* response) override;
  grpc::ServerUnaryReactor* CreateIndex(grpc::CallbackServerContext* context,
                                        const v1::CreateIndexRequest* request,
                                        v1::CreateIndexResponse* response) override;
  grpc::ServerUnaryReactor* DropIndex(grpc::CallbackServerContext* context,
                                      const v1::DropIndexRequest* request,
                                      v1::DropIndexResponse* response) override;
  grpc::ServerUnaryReactor* ApplyChanges(grpc::CallbackServerContext* context,
                                         const v1::ApplyChangesRequest* request,
                                         v1::ApplyChangesResponse* response) override;
  grpc::ServerUnaryReactor* SearchIndex(grpc::CallbackServerContext* context,
                                        const v1::SearchIndexRequest* request,
                                        v1::SearchIndexResponse* response) override;

 private:
  class Call;

  LocalShard& shard_;
  std::atomic<int> calls_ = 0;
};

}  // namespace ragcache::retrieval
