#pragma once

#include <memory>

#include <grpcpp/channel.h>

#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"
#include "services/controller/messages.h"

namespace ragcache::controller {

// Answers FindDocuments by calls to the retrieval service. Thread safe; calls in flight keep what
// they need alive.
class RetrievalClient {
 public:
  explicit RetrievalClient(std::shared_ptr<grpc::Channel> channel);
  ~RetrievalClient();

  RetrievalAddress address() const;
  // Asynchronous; UNAVAILABLE if the service cannot be reached.
  void get_info(std::function<void(absl::StatusOr<retrieval::v1::GetInfoResponse>)> done) const;

 private:
  class Calls;
  std::shared_ptr<Calls> calls_;
};

}  // namespace ragcache::controller
