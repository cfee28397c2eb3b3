#pragma once

#include <functional>
#include <memory>

#include "ragcache/controller/v1/controller.grpc.pb.h"
#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"

namespace ragcache::gateway {

// The services behind the gateway. Any thread.
struct Stubs {
  std::shared_ptr<grpc::Channel> retrieval_channel;
  std::unique_ptr<controller::v1::ControllerService::Stub> controller;
  std::unique_ptr<retrieval::v1::RetrievalService::Stub> retrieval;
};

using ControllerAsync = controller::v1::ControllerService::StubInterface::async_interface;
using RetrievalAsync = retrieval::v1::RetrievalService::StubInterface::async_interface;

// A unary call of a stub, by name.
template <typename Async, typename Request, typename Response>
using UnaryMethod = void (Async::*)(grpc::ClientContext*, const Request*, Response*,
                                    std::function<void(grpc::Status)>);

}  // namespace ragcache::gateway
