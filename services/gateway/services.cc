#include "services/gateway/services.h"

#include <utility>

#include "common/rpc/server.h"
#include "common/strings.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/stubs.h"

namespace ragcache::gateway {

absl::Status unknown_model(std::string_view asked, std::string_view served) {
  return with_details(
      absl::NotFoundError(str_cat("model: `", asked.substr(0, 100),
                                  "` does not exist; this server has `", served, "`")),
      "model", "model_not_found");
}

Services::Services(Config config_in, ApiKeys api_keys_in, metrics::Registry registry)
    : config(std::move(config_in)),
      api_keys(std::move(api_keys_in)),
      metrics(std::move(registry)),
      stubs(std::make_unique<Stubs>()) {
  stubs->controller =
      controller::v1::ControllerService::NewStub(make_channel(config.controller_address));
  stubs->retrieval_channel = make_channel(config.retrieval_address);
  stubs->retrieval = retrieval::v1::RetrievalService::NewStub(stubs->retrieval_channel);
}

Services::~Services() = default;

absl::Status Services::check_admin(std::string_view authorization) const {
  if (config.admin_key.empty()) return api_keys.tenant_of(authorization).status();
  if (bears_key(authorization, config.admin_key)) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "this needs the admin key in the header `Authorization: Bearer KEY`");
}

std::optional<std::string> Services::not_ready_reason(
    const controller::v1::GetStatusResponse& controller) const {
  if (!controller.ready()) return controller.not_ready_reason();
  if (stubs->retrieval_channel->GetState(/*try_to_connect=*/true) ==
      GRPC_CHANNEL_TRANSIENT_FAILURE) {
    return str_cat("retrieval: no connection to ", config.retrieval_address);
  }
  return std::nullopt;
}

absl::StatusOr<ModelInfo> Services::learn_model(std::string_view name,
                                                const controller::v1::GetStatusResponse& status) {
  if (!status.ready()) {
    return absl::UnavailableError(str_cat("not ready: ", status.not_ready_reason()));
  }
  return model.learn(name,
                     {.name = status.model_name(), .context_tokens = status.context_tokens()});
}

}  // namespace ragcache::gateway
