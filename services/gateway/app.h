#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "services/gateway/config.h"

namespace ragcache::gateway {

class GrpcFront;
class Services;

// The clients' front: OpenAI's HTTP API and RagService by gRPC on top of the controller and
// retrieval services. Holds no state of its own. Stops in the destructor.
class App {
 public:
  // FAILED_PRECONDITION if a port is in use. The services need not be up yet.
  static absl::StatusOr<std::unique_ptr<App>> start(Config config, metrics::Registry registry);
  ~App();

  // Lets open requests finish for config.stop_grace_ms, then cancels them. Idempotent.
  void stop();

  const std::string& address() const;  // host:port
  uint16_t port() const;
  std::string grpc_address() const;  // empty if there is none

 private:
  explicit App(std::unique_ptr<Services> services);

  std::unique_ptr<Services> services_;
  std::unique_ptr<GrpcFront> grpc_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace ragcache::gateway
