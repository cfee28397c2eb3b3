#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "ragcache/controller/v1/controller.grpc.pb.h"
#include "services/controller/clients/retrieval_client.h"
#include "services/controller/group_actor.h"
#include "services/controller/request_actor.h"

namespace ragcache::controller {

// The gRPC face of the actors: copies, posts, returns.
class Service : public v1::ControllerService::CallbackService {
 public:
  Service(ActorRuntime& runtime, std::shared_ptr<const RequestActor::Dependencies> dependencies,
          ActorRef<GroupActor> group, const RetrievalClient& retrieval);

  grpc::ServerWriteReactor<v1::AnswerResponse>* Answer(grpc::CallbackServerContext* context,
                                                       const v1::AnswerRequest* request) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ClearCache(grpc::CallbackServerContext* context,
                                       const v1::ClearCacheRequest* request,
                                       v1::ClearCacheResponse* response) override;
  grpc::ServerUnaryReactor* GetCacheTree(grpc::CallbackServerContext* context,
                                         const v1::GetCacheTreeRequest* request,
                                         v1::GetCacheTreeResponse* response) override;

  // The same for callers in this process. `done` is called once, on any thread.
  void status(std::function<void(v1::GetStatusResponse)> done) const;

 private:
  ActorRuntime& runtime_;
  const std::shared_ptr<const RequestActor::Dependencies> dependencies_;
  const ActorRef<GroupActor> group_;
  const RetrievalClient& retrieval_;
  const std::shared_ptr<std::atomic<uint32_t>> open_requests_;
  std::atomic<uint64_t> calls_ = 0;
};

}  // namespace ragcache::controller
