#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/exchange.h"
#include "ragcache/controller/v1/controller.grpc.pb.h"
#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"
#include "services/gateway/config.h"
#include "services/gateway/json.h"
#include "services/gateway/metrics.h"

namespace ragcache::gateway {

struct ModelInfo {
  std::string name;
  uint32_t context_tokens = 0;
};

// What every handler works with. Owned by the App, outlives the HTTP server. Any thread.
class Services {
 public:
  Services(Config config, metrics::Registry registry);

  // The controller's state, asked now.
  boost::asio::awaitable<absl::StatusOr<controller::v1::GetStatusResponse>> status(
      http::Exchange& exchange);

  // The served model. `name` is its name or "ragcache"; else NOT_FOUND, as OpenAI's. What the
  // controller said once is kept until a request names another model.
  boost::asio::awaitable<absl::StatusOr<ModelInfo>> find_model(http::Exchange& exchange,
                                                               std::string name);

  const Config config;
  Metrics metrics;
  const std::unique_ptr<controller::v1::ControllerService::Stub> controller;
  const std::unique_ptr<retrieval::v1::RetrievalService::Stub> retrieval;

 private:
  std::mutex mutex_;
  ModelInfo model_;  // guarded by mutex_; no name: not known yet
};

// 415 unless the body's Content-Type is one of `types` and it is not compressed.
absl::Status check_content_type(const http::Request& request,
                                std::initializer_list<std::string_view> types);

// The body, as JSON text.
boost::asio::awaitable<absl::StatusOr<std::string>> read_json_body(http::Exchange& exchange);

boost::asio::awaitable<void> respond_json(http::Exchange& exchange, OutJson value,
                                          unsigned status = 200);
boost::asio::awaitable<void> respond_error(http::Exchange& exchange, absl::Status status);

}  // namespace ragcache::gateway
