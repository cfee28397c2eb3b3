#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/cache_tree.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/http/openai_error.h"
#include "services/gateway/request/cache.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;
using nlohmann::json;

OutJson cache_json(const pb::GetStatusResponse& status) {
  const pb::CacheStats& cache = status.cache();
  return {{"policy", cache.policy()},
          {"block_tokens", status.block_tokens()},
          {"blocks",
           {{"total", cache.total_blocks()},
            {"free", cache.free_blocks()},
            {"reserved", cache.reserved_blocks()},
            {"cached", cache.cached_blocks()}}},
          {"host_blocks",
           {{"total", cache.host_total_blocks()},
            {"free", cache.host_total_blocks() - cache.host_cached_blocks()},
            {"cached", cache.host_cached_blocks()}}},
          {"nodes", cache.nodes()},
          {"pinned_nodes", cache.pinned_nodes()},
          {"kept_nodes", cache.kept_nodes()},
          {"cached_tokens", cache.cached_tokens()},
          {"device_tokens", cache.device_tokens()},
          {"host_tokens", cache.host_tokens()},
          {"queried_prefix_tokens", cache.queried_prefix_tokens()},
          {"hit_prefix_tokens", cache.hit_prefix_tokens()},
          {"hit_host_prefix_tokens", cache.hit_host_prefix_tokens()},
          {"evicted_nodes", cache.evicted_nodes()},
          {"demoted_nodes", cache.demoted_nodes()},
          {"evicted_host_nodes", cache.evicted_host_nodes()},
          {"released_copies", cache.released_copies()},
          {"lost_copies", cache.lost_copies()},
          {"saved_bytes", cache.saved_bytes()},
          {"loaded_bytes", cache.loaded_bytes()},
          {"ledger_mismatches", cache.ledger_mismatches()},
          {"documents", status.documents()},
          {"index_kind", status.index_kind()},
          {"running_requests", status.running_requests()},
          {"waiting_requests", status.waiting_requests()}};
}

// ---- the tree

enum class TreeFormat { kJson, kText, kDot };

absl::StatusOr<TreeFormat> parse_format(const http::Request& request) {
  const std::string* format = http::find_parameter(request.query, "format");
  if (format == nullptr || *format == "json") return TreeFormat::kJson;
  if (*format == "text") return TreeFormat::kText;
  if (*format == "dot") return TreeFormat::kDot;
  return invalid_field("format", "must be one of json, text, dot");
}

absl::StatusOr<pb::GetCacheTreeRequest> parse_tree(const http::Request& http_request) {
  pb::GetCacheTreeRequest request;
  if (const std::string* text = http::find_parameter(http_request.query, "max_nodes")) {
    uint32_t nodes = 0;
    const char* end = text->data() + text->size();
    const auto [rest, fault] = std::from_chars(text->data(), end, nodes);
    if (fault != std::errc() || rest != end || nodes == 0) {
      return invalid_field("max_nodes", str_cat("must be 1 to ", kMaxTreeNodes));
    }
    request.set_max_nodes(nodes);
  }
  RAG_RETURN_IF_ERROR(check_cache_tree(request));
  return request;
}

// ---- paths

absl::StatusOr<v1::UpdateCachePathsRequest::Path> parse_path(const std::string& name,
                                                             const json& value) {
  if (!value.is_array()) {
    return invalid_field(name, str_cat("must be an array of ids, not ", kind_of(value)),
                         "invalid_type");
  }
  v1::UpdateCachePathsRequest::Path path;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_string()) {
      return invalid_field(str_cat(name, "[", i, "]"),
                           str_cat("must be a string, not ", kind_of(value[i])), "invalid_type");
    }
    path.add_documents(value[i].get_ref<const std::string&>());
  }
  return path;
}

absl::StatusOr<v1::UpdateCachePathsRequest> parse_paths(const json& body, const RagLimits& limits) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  v1::UpdateCachePathsRequest request;
  const json* paths = fields.find("paths");
  const json* documents = fields.find("documents");
  if (paths == nullptr && documents == nullptr) return missing_field("paths");
  if (paths != nullptr && documents != nullptr) {
    return invalid_field("documents", "is one path, instead of paths: give one of them");
  }
  if (documents != nullptr) {
    RAG_ASSIGN_OR_RETURN(*request.add_paths(), parse_path("documents", *documents));
    RAG_RETURN_IF_ERROR(check_cache_path("documents", request.paths(0), limits));
  } else if (!paths->is_array()) {
    return invalid_field("paths", str_cat("must be an array of paths, not ", kind_of(*paths)),
                         "invalid_type");
  } else {
    for (size_t i = 0; i < paths->size(); ++i) {
      RAG_ASSIGN_OR_RETURN(*request.add_paths(),
                           parse_path(str_cat("paths[", i, "]"), (*paths)[i]));
    }
  }
  RAG_ASSIGN_OR_RETURN(auto corpus, fields.text("corpus", 1));
  if (corpus) request.set_corpus(*std::move(corpus));
  RAG_ASSIGN_OR_RETURN(auto tenant, fields.text("tenant", 1, kMaxTenantBytes));
  if (tenant) request.set_tenant(*std::move(tenant));
  RAG_ASSIGN_OR_RETURN(auto system, fields.text("system", 1, kMaxContentBytes));
  if (system) request.set_system(*std::move(system));
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  return request;
}

OutJson paths_json(const v1::UpdateCachePathsRequest& request,
                   const v1::UpdateCachePathsResponse& response) {
  OutJson paths = OutJson::array();
  for (int i = 0; i < response.paths_size(); ++i) {
    const v1::UpdateCachePathsResponse::Path& path = response.paths(i);
    OutJson documents = OutJson::array();
    for (const std::string& id : request.paths(i).documents()) documents.push_back(id);
    OutJson told = {{"documents", std::move(documents)}};
    if (path.code() == 0) {
      told["tokens"] = path.tokens();
      told["cached_tokens"] = path.cached_tokens();
    } else {
      told["error"] =
          error_json(absl::Status(static_cast<absl::StatusCode>(path.code()), path.error()));
    }
    paths.push_back(std::move(told));
  }
  return {{"paths", std::move(paths)},
          {"done", response.done()},
          {"failed", response.failed()},
          {"tokens", response.tokens()},
          {"cached_tokens", response.cached_tokens()}};
}

awaitable<absl::StatusOr<pb::Completed>> run_to_end(Call& call, pb::AnswerRequest request) {
  std::vector<pb::AnswerRequest> requests;
  requests.push_back(std::move(request));
  backend::AnswerStreams answers(call, std::move(requests));
  absl::StatusOr<pb::Completed> ended =
      absl::InternalError("the controller ended an answer without completing it");
  size_t index = 0;
  pb::AnswerResponse response;
  while (co_await answers.next(index, response)) {
    if (response.has_completed()) ended = response.completed();
  }
  if (!answers.status().ok()) co_return answers.status();
  co_return ended;
}

awaitable<absl::Status> update_paths(Call& call, v1::CachePathAction action) {
  absl::StatusOr<json> body = co_await read_json(call);
  if (!body.ok()) co_return body.status();
  const RagLimits limits = {.default_top_k = call.config().default_top_k,
                            .max_top_k = call.config().max_top_k};
  absl::StatusOr<v1::UpdateCachePathsRequest> request = parse_paths(*body, limits);
  if (!request.ok()) co_return request.status();
  request->set_action(action);
  absl::StatusOr<std::vector<pb::AnswerRequest>> answers = to_answers(*request, limits);
  if (!answers.ok()) co_return answers.status();
  v1::UpdateCachePathsResponse response;
  for (pb::AnswerRequest& answer : *answers) {
    answer.set_request_id(call.request().id);
    absl::StatusOr<pb::Completed> ended = co_await run_to_end(call, std::move(answer));
    absl::Status status = add_path(ended, response);
    if (!status.ok()) co_return status;
  }
  OutJson value = paths_json(*request, response);
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace

awaitable<absl::Status> handle_cache(Call& call) {
  absl::StatusOr<pb::GetStatusResponse> status = co_await backend::get_status(call);
  if (!status.ok()) co_return status.status();
  OutJson value = cache_json(*status);
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_cache_tree(Call& call) {
  absl::StatusOr<TreeFormat> format = parse_format(call.request());
  if (!format.ok()) co_return format.status();
  absl::StatusOr<pb::GetCacheTreeRequest> request = parse_tree(call.request());
  if (!request.ok()) co_return request.status();
  absl::StatusOr<pb::GetCacheTreeResponse> tree =
      co_await backend::get_cache_tree(call, *std::move(request));
  if (!tree.ok()) co_return tree.status();
  if (*format == TreeFormat::kJson) {
    OutJson value = tree_json(*tree);
    co_return co_await respond_json(call, std::move(value));
  }
  http::Response response;
  const bool dot = *format == TreeFormat::kDot;
  response.content_type = dot ? "text/vnd.graphviz; charset=utf-8" : "text/plain; charset=utf-8";
  response.body = dot ? tree_dot(*tree) : tree_text(*tree);
  co_await call.exchange.respond(std::move(response));
  co_return absl::OkStatus();
}

awaitable<absl::Status> handle_clear_cache(Call& call) {
  absl::StatusOr<pb::ClearCacheResponse> cleared = co_await backend::clear_cache(call);
  if (!cleared.ok()) co_return cleared.status();
  OutJson value = {{"cleared_nodes", cleared->cleared_nodes()},
                   {"cleared_tokens", cleared->cleared_tokens()},
                   {"kept_nodes", cleared->kept_nodes()}};
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_warm_paths(Call& call) {
  return update_paths(call, v1::CACHE_PATH_ACTION_WARM);
}

awaitable<absl::Status> handle_pin_paths(Call& call) {
  return update_paths(call, v1::CACHE_PATH_ACTION_PIN);
}

awaitable<absl::Status> handle_unpin_paths(Call& call) {
  return update_paths(call, v1::CACHE_PATH_ACTION_UNPIN);
}

}  // namespace ragcache::gateway
