#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// The gRPC server of RagService, with reflection and the standard health service, which says
// SERVING while the controller is ready.
class GrpcFront {
 public:
  // Listens on services.config.grpc_listen. `services` outlive the front.
  static absl::StatusOr<std::unique_ptr<GrpcFront>> start(Services& services);
  ~GrpcFront();

  const std::string& address() const;  // host:port
  // Lets open calls end for `grace`, then cancels them. Idempotent.
  void stop(Duration grace);

 private:
  struct Parts;
  explicit GrpcFront(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace ragcache::gateway
