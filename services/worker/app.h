#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "services/worker/config.h"

namespace ragcache::worker {

// The worker service: model, KV memory, engine on its thread, gRPC server.
class App {
 public:
  // Makes state_dir if it is not there. A folder that cannot be written, a model file that cannot
  // be read or is not of a known kind, KV memory too small for it, or an address in use gives a
  // Status that says so.
  static absl::StatusOr<std::unique_ptr<App>> start(const Config& config,
                                                    metrics::Registry registry);
  ~App();

  // Ends the stream and what it has running. Idempotent.
  void stop();
  const std::string& address() const;

 private:
  struct Parts;
  explicit App(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ragcache::worker
