#include "services/gateway/grpc/front.h"

#include <utility>

#include "common/rpc/server.h"
#include "common/status.h"
#include "services/gateway/grpc/rag_service.h"
#include "services/gateway/grpc/readiness.h"

namespace ragcache::gateway {

struct GrpcFront::Parts {
  explicit Parts(Services& services) : service(services) {}

  RagService service;
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<Readiness> readiness;  // ends first
};

GrpcFront::GrpcFront(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
GrpcFront::~GrpcFront() = default;

absl::StatusOr<std::unique_ptr<GrpcFront>> GrpcFront::start(Services& services) {
  auto parts = std::make_unique<Parts>(services);
  grpc::Service* const registered[] = {&parts->service};
  RAG_ASSIGN_OR_RETURN(parts->server,
                       RpcServer::start(services.config.grpc_listen, registered,
                                        static_cast<int>(services.config.limits.max_body_bytes)));
  parts->readiness = std::make_unique<Readiness>(services, *parts->server);
  return std::unique_ptr<GrpcFront>(new GrpcFront(std::move(parts)));
}

const std::string& GrpcFront::address() const { return parts_->server->address(); }

void GrpcFront::stop(Duration grace) {
  parts_->readiness.reset();
  parts_->server->stop(grace);
}

}  // namespace ragcache::gateway
