#include <optional>
#include <string>
#include <utility>

#include "common/metrics/metrics.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/handlers.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;

OutJson model_json(const ModelInfo& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "ragcache"},
          {"context_tokens", model.context_tokens}};
}

}  // namespace

awaitable<absl::Status> handle_livez(Call& call) {
  OutJson value = {{"status", "ok"}};
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_readyz(Call& call) {
  absl::StatusOr<pb::GetStatusResponse> status = co_await backend::get_status(call);
  OutJson reasons = OutJson::array();
  if (!status.ok()) {
    reasons.push_back(str_cat("controller: ", status.status().message()));
  } else if (std::optional<std::string> reason = call.services.not_ready_reason(*status)) {
    reasons.push_back(std::move(*reason));
  }
  const bool ready = reasons.empty();
  OutJson value = {{"ready", ready}, {"reasons", std::move(reasons)}};
  co_return co_await respond_json(call, std::move(value), ready ? 200 : 503);
}

awaitable<absl::Status> handle_metrics(Call& call) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics::to_text(*call.services.metrics.registry);
  co_await call.exchange.respond(std::move(response));
  co_return absl::OkStatus();
}

awaitable<absl::Status> handle_models(Call& call) {
  absl::StatusOr<ModelInfo> model = co_await backend::find_model(call, std::string(kModelAlias));
  if (!model.ok()) co_return model.status();
  OutJson value = {{"object", "list"}, {"data", OutJson::array({model_json(*model)})}};
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_model(Call& call) {
  std::string name = *http::find_parameter(call.request().path_values, "model");
  absl::StatusOr<ModelInfo> model = co_await backend::find_model(call, std::move(name));
  if (!model.ok()) co_return model.status();
  OutJson value = model_json(*model);
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace ragcache::gateway
