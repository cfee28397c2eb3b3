#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/server.h"
#include "common/metrics/metrics.h"
#include "services/gateway/config.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// The clients' front: OpenAI's HTTP API on top of the controller and retrieval services. Holds no
// state of its own. Stops in the destructor.
class App {
 public:
  // FAILED_PRECONDITION if the port is in use. The services need not be up yet.
  static absl::StatusOr<std::unique_ptr<App>> start(Config config, metrics::Registry registry);
  ~App();

  // Lets open requests finish for config.stop_grace_ms, then cancels them. Idempotent.
  void stop();

  const std::string& address() const { return server_->address(); }  // host:port
  uint16_t port() const { return server_->port(); }

 private:
  explicit App(std::unique_ptr<Services> services) : services_(std::move(services)) {}

  std::unique_ptr<Services> services_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace ragcache::gateway
