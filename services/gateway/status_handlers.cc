#include "services/gateway/status_handlers.h"

#include <string>
#include <utility>

#include "common/hash.h"
#include "common/http/error.h"
#include "common/strings.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/upstream.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;

absl::Status check_admin(const Services& services, const http::Exchange& exchange) {
  const std::string& key = services.config.admin_key;
  if (key.empty() || bears_key(exchange.request().headers.get("authorization"), key)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "this needs the admin key in the header `Authorization: Bearer KEY`");
}

OutJson model_json(const ModelInfo& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "ragcache"},
          {"context_tokens", model.context_tokens}};
}

OutJson cache_json(const pb::GetStatusResponse& status) {
  const pb::CacheStats& cache = status.cache();
  return {{"policy", cache.policy()},
          {"block_tokens", status.block_tokens()},
          {"blocks",
           {{"total", cache.total_blocks()},
            {"free", cache.free_blocks()},
            {"reserved", cache.reserved_blocks()},
            {"cached", cache.cached_blocks()}}},
          {"nodes", cache.nodes()},
          {"pinned_nodes", cache.pinned_nodes()},
          {"cached_tokens", cache.cached_tokens()},
          {"queried_prefix_tokens", cache.queried_prefix_tokens()},
          {"hit_prefix_tokens", cache.hit_prefix_tokens()},
          {"evicted_nodes", cache.evicted_nodes()},
          {"ledger_mismatches", cache.ledger_mismatches()},
          {"documents", status.documents()},
          {"index_kind", status.index_kind()},
          {"running_requests", status.running_requests()},
          {"waiting_requests", status.waiting_requests()}};
}

}  // namespace

bool bears_key(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kScheme = "Bearer ";
  const bool has_scheme =
      http::equals_ignore_case(authorization.substr(0, kScheme.size()), kScheme);
  if (has_scheme) authorization.remove_prefix(kScheme.size());
  // Digests have one length and tell nothing about how much of the key was right.
  const Digest given = sha256(authorization);
  const Digest wanted = sha256(key);
  unsigned difference = has_scheme ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) difference |= given[i] ^ wanted[i];
  return difference == 0;
}

awaitable<void> handle_livez(Services&, http::Exchange& exchange) {
  OutJson value = {{"status", "ok"}};
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_readyz(Services& services, http::Exchange& exchange) {
  absl::StatusOr<pb::GetStatusResponse> status = co_await services.status(exchange);
  OutJson reasons = OutJson::array();
  if (!status.ok()) {
    reasons.push_back(str_cat("controller: ", status.status().message()));
  } else if (!status->ready()) {
    reasons.push_back(status->not_ready_reason());
  }
  const bool ready = reasons.empty();
  OutJson value = {{"ready", ready}, {"reasons", std::move(reasons)}};
  co_await respond_json(exchange, std::move(value), ready ? 200 : 503);
}

awaitable<void> handle_metrics(Services& services, http::Exchange& exchange) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics::to_text(*services.metrics.registry);
  co_await exchange.respond(std::move(response));
}

awaitable<void> handle_models(Services& services, http::Exchange& exchange) {
  absl::StatusOr<ModelInfo> model = co_await services.find_model(exchange, "ragcache");
  if (!model.ok()) {
    co_await respond_error(exchange, model.status());
    co_return;
  }
  OutJson value = {{"object", "list"}, {"data", OutJson::array({model_json(*model)})}};
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_model(Services& services, http::Exchange& exchange) {
  std::string name = *http::find_parameter(exchange.request().path_values, "model");
  absl::StatusOr<ModelInfo> model = co_await services.find_model(exchange, std::move(name));
  if (!model.ok()) {
    co_await respond_error(exchange, model.status());
    co_return;
  }
  OutJson value = model_json(*model);
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_cache(Services& services, http::Exchange& exchange) {
  absl::Status allowed = check_admin(services, exchange);
  if (!allowed.ok()) {
    co_await respond_error(exchange, std::move(allowed));
    co_return;
  }
  absl::StatusOr<pb::GetStatusResponse> status = co_await services.status(exchange);
  if (!status.ok()) {
    co_await respond_error(exchange, status.status());
    co_return;
  }
  OutJson value = cache_json(*status);
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_clear_cache(Services& services, http::Exchange& exchange) {
  absl::Status allowed = check_admin(services, exchange);
  if (!allowed.ok()) {
    co_await respond_error(exchange, std::move(allowed));
    co_return;
  }
  auto start = [&services](auto* context, auto* request, auto* response, auto done) {
    services.controller->async()->ClearCache(context, request, response, std::move(done));
  };
  absl::StatusOr<pb::ClearCacheResponse> cleared = co_await call_unary<pb::ClearCacheResponse>(
      exchange, services.config.upstream_timeout_ms, pb::ClearCacheRequest(), start);
  if (!cleared.ok()) {
    co_await respond_error(exchange, cleared.status());
    co_return;
  }
  OutJson value = {{"cleared_nodes", cleared->cleared_nodes()},
                   {"cleared_tokens", cleared->cleared_tokens()},
                   {"kept_nodes", cleared->kept_nodes()}};
  co_await respond_json(exchange, std::move(value));
}

}  // namespace ragcache::gateway
