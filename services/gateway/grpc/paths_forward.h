#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ragcache/gateway/v1/gateway.pb.h"
#include "services/gateway/grpc/forward.h"

namespace ragcache::gateway {

// RagService.UpdateCachePaths: an answer for each path, one after the other, of which only the end
// counts.
class PathsForward final : public grpc::ServerUnaryReactor {
 public:
  // Owned by itself.
  PathsForward(Inbound inbound, absl::StatusOr<std::vector<controller::v1::AnswerRequest>> answers,
               Bytes* response);

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  class Answer;

  void ask_next();
  void take(const absl::StatusOr<controller::v1::Completed>& ended);
  void finish(const absl::Status& status);

  const Inbound inbound_;
  std::vector<controller::v1::AnswerRequest> answers_;
  v1::UpdateCachePathsResponse paths_;
  Bytes* const response_;  // the paths, at the end

  std::mutex mutex_;                 // guards what follows
  std::shared_ptr<Answer> current_;  // the one that is being given
  bool cancelled_ = false;
};

}  // namespace ragcache::gateway
