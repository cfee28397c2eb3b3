#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "services/retrieval/service.h"

namespace ragcache::retrieval {

// One Embed call. gRPC owns the object from its construction until OnDone().
class EmbedCall final : public grpc::ServerUnaryReactor {
 public:
  EmbedCall(Service& service, const v1::EmbedRequest& request, v1::EmbedResponse& response);

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  absl::Status check(const v1::EmbedRequest& request) const;
  void finish(const absl::StatusOr<Embeddings>& embedded);

  Service& service_;
  const CallSlot slot_;
  v1::EmbedResponse& response_;
  std::stop_source stop_;
};

}  // namespace ragcache::retrieval
