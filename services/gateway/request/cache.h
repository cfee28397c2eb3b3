#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "ragcache/gateway/v1/gateway.pb.h"
#include "services/gateway/request/answer.h"

// What operators ask of the cache. Every bound is checked here, whichever way a request came.
namespace ragcache::gateway {

// Fills in a max_nodes of 0.
absl::Status check_cache_tree(controller::v1::GetCacheTreeRequest& request);

absl::Status check_cache_path(std::string_view name, const v1::UpdateCachePathsRequest::Path& path,
                              const RagLimits& limits);

// An answer of one token for each path: what it computes stays in the cache. request_id is left
// out.
absl::StatusOr<std::vector<controller::v1::AnswerRequest>> to_answers(
    const v1::UpdateCachePathsRequest& request, const RagLimits& limits);

// Adds what became of the next path. Not OK if the fault is not that path's own: then there is
// nothing to be had from asking for the others.
absl::Status add_path(const absl::StatusOr<controller::v1::Completed>& ended,
                      v1::UpdateCachePathsResponse& response);

}  // namespace ragcache::gateway
