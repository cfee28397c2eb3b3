#include "services/gateway/services.h"

#include <algorithm>

#include "common/http/error.h"
#include "common/rpc/server.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/upstream.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;

constexpr std::string_view kModelAlias = "ragcache";

}  // namespace

Services::Services(Config config_in, metrics::Registry registry)
    : config(std::move(config_in)),
      metrics(std::move(registry)),
      controller(pb::ControllerService::NewStub(make_channel(config.controller_address))),
      retrieval(retrieval::v1::RetrievalService::NewStub(make_channel(config.retrieval_address))) {}

awaitable<absl::StatusOr<pb::GetStatusResponse>> Services::status(http::Exchange& exchange) {
  auto start = [this](auto* context, auto* request, auto* response, auto done) {
    controller->async()->GetStatus(context, request, response, std::move(done));
  };
  return call_unary<pb::GetStatusResponse>(exchange, config.upstream_timeout_ms,
                                           pb::GetStatusRequest(), start);
}

awaitable<absl::StatusOr<ModelInfo>> Services::find_model(http::Exchange& exchange,
                                                          std::string name) {
  ModelInfo known;
  {
    std::lock_guard lock(mutex_);
    known = model_;
  }
  if (known.name.empty() || (name != kModelAlias && name != known.name)) {
    absl::StatusOr<pb::GetStatusResponse> status = co_await this->status(exchange);
    if (!status.ok()) co_return status.status();
    if (!status->ready()) {
      co_return absl::UnavailableError(str_cat("not ready: ", status->not_ready_reason()));
    }
    known = {.name = status->model_name(), .context_tokens = status->context_tokens()};
    std::lock_guard lock(mutex_);
    model_ = known;
  }
  if (name != kModelAlias && name != known.name) {
    co_return with_details(
        absl::NotFoundError(str_cat("model: `", name.substr(0, 100),
                                    "` does not exist; this server has `", known.name, "`")),
        "model", "model_not_found");
  }
  co_return known;
}

absl::Status check_content_type(const http::Request& request,
                                std::initializer_list<std::string_view> types) {
  if (const std::string* encoding = request.headers.find("content-encoding");
      encoding != nullptr && !http::equals_ignore_case(*encoding, "identity")) {
    return http::error(415, "Content-Encoding: compressed bodies are not supported");
  }
  std::string_view type = request.headers.get("content-type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  std::string wanted;
  for (std::string_view known : types) {
    if (http::equals_ignore_case(type, known)) return absl::OkStatus();
    wanted += str_cat(wanted.empty() ? "" : " or ", known);
  }
  return http::error(
      415, str_cat("Content-Type: must be ", wanted, ", not `", type.substr(0, 100), "`"));
}

awaitable<absl::StatusOr<std::string>> read_json_body(http::Exchange& exchange) {
  absl::Status type = check_content_type(exchange.request(), {"application/json"});
  if (!type.ok()) co_return type;
  absl::StatusOr<std::string> body = co_await exchange.read_body();
  co_return body;
}

awaitable<void> respond_json(http::Exchange& exchange, OutJson value, unsigned status) {
  http::Response response;
  response.status = status;
  response.body = dump_json(value);
  co_await exchange.respond(std::move(response));
}

awaitable<void> respond_error(http::Exchange& exchange, absl::Status status) {
  http::Response response = error_response(status);
  co_await exchange.respond(std::move(response));
}

}  // namespace ragcache::gateway
