#include "services/gateway/request/cache.h"

#include <string>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

absl::StatusOr<pb::PathAction> to_path_action(v1::CachePathAction action) {
  switch (action) {
    case v1::CACHE_PATH_ACTION_WARM:
      return pb::PATH_ACTION_UNSPECIFIED;
    case v1::CACHE_PATH_ACTION_PIN:
      return pb::PATH_ACTION_KEEP;
    case v1::CACHE_PATH_ACTION_UNPIN:
      return pb::PATH_ACTION_RELEASE;
    default:
      return invalid_field("action", "must be one of warm, pin, unpin");
  }
}

// A path stands for every question that may follow it.
v1::ChatRequest chat_of(const v1::UpdateCachePathsRequest& request) {
  v1::ChatRequest chat;
  if (!request.system().empty()) {
    pb::Message& system = *chat.add_messages();
    system.set_role(pb::ROLE_SYSTEM);
    system.set_content(request.system());
  }
  pb::Message& question = *chat.add_messages();
  question.set_role(pb::ROLE_USER);
  question.set_content("?");
  chat.mutable_generation()->set_max_tokens(1);
  chat.mutable_generation()->set_temperature(0);
  chat.mutable_rag()->set_corpus(request.corpus());
  return chat;
}

}  // namespace

absl::Status check_cache_tree(pb::GetCacheTreeRequest& request) {
  if (request.max_nodes() == 0) request.set_max_nodes(kDefaultTreeNodes);
  if (request.max_nodes() <= kMaxTreeNodes) return absl::OkStatus();
  return invalid_field("max_nodes",
                       str_cat("must be 1 to ", kMaxTreeNodes, ", not ", request.max_nodes()));
}

absl::Status check_cache_path(std::string_view name, const v1::UpdateCachePathsRequest::Path& path,
                              const RagLimits& limits) {
  const int count = path.documents_size();
  if (count == 0 || static_cast<uint32_t>(count) > limits.max_top_k) {
    return invalid_field(name, str_cat("must hold 1 to ", limits.max_top_k, " ids, not ", count));
  }
  return check_stored_ids(name, path.documents());
}

absl::StatusOr<std::vector<pb::AnswerRequest>> to_answers(
    const v1::UpdateCachePathsRequest& request, const RagLimits& limits) {
  RAG_ASSIGN_OR_RETURN(const pb::PathAction action, to_path_action(request.action()));
  const int count = request.paths_size();
  if (count == 0 || count > kMaxCachePaths) {
    return invalid_field("paths",
                         str_cat("must hold 1 to ", kMaxCachePaths, " paths, not ", count));
  }
  RAG_RETURN_IF_ERROR(check_corpus("corpus", request.corpus()));
  RAG_RETURN_IF_ERROR(check_bytes("tenant", request.tenant(), 0, kMaxTenantBytes));
  RAG_RETURN_IF_ERROR(check_bytes("system", request.system(), 0, kMaxContentBytes));
  const v1::ChatRequest common = chat_of(request);
  std::vector<pb::AnswerRequest> answers;
  for (int i = 0; i < count; ++i) {
    RAG_RETURN_IF_ERROR(check_cache_path(str_cat("paths[", i, "]"), request.paths(i), limits));
    v1::ChatRequest chat = common;
    *chat.mutable_rag()->mutable_documents() = request.paths(i).documents();
    RAG_ASSIGN_OR_RETURN(pb::AnswerRequest answer, to_answer(std::move(chat), limits));
    answer.set_tenant(request.tenant());
    answer.set_path_action(action);
    answers.push_back(std::move(answer));
  }
  return answers;
}

absl::Status add_path(const absl::StatusOr<pb::Completed>& ended,
                      v1::UpdateCachePathsResponse& response) {
  const absl::Status& status = ended.status();
  if (!status.ok() && !absl::IsNotFound(status) && !absl::IsInvalidArgument(status)) {
    return with_prefix(status, str_cat("paths[", response.paths_size(), "]: "));
  }
  v1::UpdateCachePathsResponse::Path& path = *response.add_paths();
  if (!status.ok()) {
    path.set_code(static_cast<uint32_t>(status.code()));
    path.set_error(std::string(status.message()));
    response.set_failed(response.failed() + 1);
    return absl::OkStatus();
  }
  path.set_tokens(ended->prompt_tokens());
  path.set_cached_tokens(ended->cached_tokens());
  response.set_done(response.done() + 1);
  response.set_tokens(response.tokens() + path.tokens());
  response.set_cached_tokens(response.cached_tokens() + path.cached_tokens());
  return absl::OkStatus();
}

}  // namespace ragcache::gateway
