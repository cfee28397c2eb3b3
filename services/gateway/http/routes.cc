#include "services/gateway/http/routes.h"

#include <utility>

#include "common/status.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/http/openai_error.h"

namespace ragcache::gateway {
namespace {

using boost::asio::awaitable;

enum class Access { kOpen, kClient, kAdmin };

struct Route {
  const char* method;
  const char* pattern;
  Handle handle;
  Access access = Access::kClient;
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", handle_chat},
    {"POST", "/v1/completions", handle_completions},
    {"POST", "/v1/embeddings", handle_embeddings},
    {"POST", "/v1/search", handle_search},
    {"GET", "/v1/models", handle_models},
    {"GET", "/v1/models/{model}", handle_model},
    {"POST", "/v1/documents", handle_upload},
    {"GET", "/v1/documents", handle_list_documents},
    {"POST", "/v1/documents/delete", handle_delete_documents},
    {"PUT", "/v1/documents/{id}", handle_put_document},
    {"GET", "/v1/documents/{id}", handle_get_document},
    {"DELETE", "/v1/documents/{id}", handle_delete_document},
    {"GET", "/v1/corpora", handle_list_corpora},
    {"PUT", "/v1/corpora/{name}", handle_put_corpus},
    {"GET", "/v1/corpora/{name}", handle_get_corpus},
    {"DELETE", "/v1/corpora/{name}", handle_delete_corpus},
    {"GET", "/livez", handle_livez, Access::kOpen},
    {"GET", "/readyz", handle_readyz, Access::kOpen},
    {"GET", "/metrics", handle_metrics, Access::kOpen},
    {"GET", "/admin/cache", handle_cache, Access::kAdmin},
    {"GET", "/admin/cache/stats", handle_cache, Access::kAdmin},
    {"GET", "/admin/cache/tree", handle_cache_tree, Access::kAdmin},
    {"POST", "/admin/cache/clear", handle_clear_cache, Access::kAdmin},
    {"POST", "/admin/cache/warm", handle_warm_paths, Access::kAdmin},
    {"POST", "/admin/cache/pin", handle_pin_paths, Access::kAdmin},
    {"POST", "/admin/cache/unpin", handle_unpin_paths, Access::kAdmin},
};

absl::StatusOr<std::string> authenticate(const Services& services, Access access,
                                         std::string_view authorization) {
  switch (access) {
    case Access::kOpen:
      break;
    case Access::kClient:
      return services.api_keys.tenant_of(authorization);
    case Access::kAdmin:
      RAG_RETURN_IF_ERROR(services.check_admin(authorization));
      break;
  }
  return std::string();
}

awaitable<void> serve(Services& services, const Route& route, http::Exchange& exchange) {
  Call call{.services = services, .exchange = exchange};
  absl::StatusOr<std::string> tenant =
      authenticate(services, route.access, exchange.request().headers.get("authorization"));
  absl::Status status = tenant.status();
  if (status.ok()) {
    call.tenant = *std::move(tenant);
    absl::StatusOr<TimePoint> deadline =
        deadline_of(exchange.request(), exchange.arrival(), services.config.answer_timeout_ms);
    status = deadline.status();
    if (status.ok()) call.deadline = *deadline;
  }
  if (status.ok()) status = co_await route.handle(call);
  if (status.ok() || exchange.response_started() || exchange.disconnected()) co_return;
  http::Response response = error_response(status);
  co_await exchange.respond(std::move(response));
}

}  // namespace

http::Router make_routes(Services& services) {
  http::Router router;
  for (const Route& route : kRoutes) {
    router.add(route.method, route.pattern, [&services, &route](http::Exchange& exchange) {
      return serve(services, route, exchange);
    });
  }
  return router;
}

}  // namespace ragcache::gateway
