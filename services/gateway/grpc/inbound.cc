#include <grpc/grpc.h>

#include <string_view>

#include "common/http/message.h"
#include "common/ids.h"
#include "common/log/log.h"
#include "common/strings.h"
#include "services/gateway/grpc/forward.h"

namespace ragcache::gateway {
namespace {

std::string_view metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

Inbound::Inbound(Services& services, grpc::CallbackServerContext* context, const char* method,
                 Access access)
    : services_(services),
      context_(context),
      method_(method),
      arrival_(steady_now()),
      request_id_(metadata(*context, "x-request-id")),
      trace_parent_(metadata(*context, "traceparent")) {
  if (!http::is_valid_request_id(request_id_)) request_id_ = new_request_id();
  if (!http::is_valid_trace_parent(trace_parent_)) trace_parent_.clear();
  context->AddInitialMetadata("x-request-id", request_id_);
  const std::string_view authorization = metadata(*context, "authorization");
  if (access == Access::kAdmin) {
    admission_ = services.check_admin(authorization);
    return;
  }
  absl::StatusOr<std::string> tenant = services.api_keys.tenant_of(authorization);
  admission_ = tenant.status();
  if (tenant.ok()) tenant_ = *std::move(tenant);
}

void Inbound::prepare(grpc::ClientContext& context, std::optional<int64_t> timeout_ms) const {
  auto deadline = context_->deadline();
  if (timeout_ms) {
    deadline = std::min(deadline, deadline_in(std::chrono::milliseconds(*timeout_ms)));
  }
  context.set_deadline(deadline);
  context.AddMetadata("x-request-id", request_id_);
  if (!trace_parent_.empty()) context.AddMetadata("traceparent", trace_parent_);
}

grpc::Status Inbound::ended(const absl::Status& status) const {
  const std::string code = absl::StatusCodeToString(status.code());
  services_.metrics.count_call(method_, code);
  log::info("call", {{"request_id", request_id_},
                     {"traceparent", trace_parent_},
                     {"method", method_},
                     {"code", code},
                     {"seconds", to_seconds(steady_now() - arrival_)}});
  return to_grpc_status(status);
}

// TryCancel() would not tell why.
void Inbound::cancel(const absl::Status& status) const {
  const grpc::Status told = to_grpc_status(status);
  grpc_call_cancel_with_status(context_->c_call(), static_cast<grpc_status_code>(told.error_code()),
                               told.error_message().c_str(), nullptr);
}

}  // namespace ragcache::gateway
