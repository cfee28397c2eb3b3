#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "services/gateway/api_keys.h"
#include "services/gateway/config.h"
#include "services/gateway/metrics.h"

namespace ragcache::gateway {

inline constexpr std::string_view kModelAlias = "ragcache";

struct ModelInfo {
  std::string name;
  uint32_t context_tokens = 0;
};

struct EmbedderInfo {
  std::string name;
  uint32_t dimension = 0;
};

// NOT_FOUND, as OpenAI's, that tells what is there.
absl::Status unknown_model(std::string_view asked, std::string_view served);

// What a service said of the one model it serves. It is kept until a request names another one:
// then the service is asked anew, which may have been restarted with that. Any thread.
template <typename Info>
class ServedModel {
 public:
  // Nothing if the service is to be asked.
  std::optional<Info> find(std::string_view name) const {
    std::lock_guard lock(mutex_);
    if (info_.name.empty() || !answers_to(info_, name)) return std::nullopt;
    return info_;
  }

  // Takes what the service said; NOT_FOUND if that is not the model asked for.
  absl::StatusOr<Info> learn(std::string_view name, Info info) {
    std::lock_guard lock(mutex_);
    info_ = std::move(info);
    if (!answers_to(info_, name)) return unknown_model(name, info_.name);
    return info_;
  }

 private:
  static bool answers_to(const Info& info, std::string_view name) {
    return name == kModelAlias || name == info.name;
  }

  mutable std::mutex mutex_;
  Info info_;  // guarded by mutex_
};

struct Stubs;  // stubs.h: gRPC's headers are for those that call

// What both fronts work with. Owned by the App, outlives them. Any thread.
class Services {
 public:
  Services(Config config, ApiKeys api_keys, metrics::Registry registry);
  ~Services();

  // UNAUTHENTICATED unless an admin's call bears the admin key or, where there is none, a client's.
  absl::Status check_admin(std::string_view authorization) const;

  // Why requests would fail now, by a controller's status and the gateway's own connection to
  // retrieval, which may be broken when the controller's is not. Nothing: ready.
  std::optional<std::string> not_ready_reason(
      const controller::v1::GetStatusResponse& controller) const;

  // The model of a controller's status; UNAVAILABLE if it is not ready, NOT_FOUND if it is another.
  absl::StatusOr<ModelInfo> learn_model(std::string_view name,
                                        const controller::v1::GetStatusResponse& status);

  const Config config;
  const ApiKeys api_keys;
  Metrics metrics;
  ServedModel<ModelInfo> model;
  ServedModel<EmbedderInfo> embedder;
  const std::unique_ptr<Stubs> stubs;
};

}  // namespace ragcache::gateway
