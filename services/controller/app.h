#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "services/controller/config.h"

namespace ragcache::controller {

// The controller service: actors, links to worker and retrieval, gRPC server.
class App {
 public:
  static absl::StatusOr<std::unique_ptr<App>> start(const Config& config,
                                                    metrics::Registry registry);
  ~App();

  // Ends open calls and actors. Idempotent.
  void stop();
  const std::string& address() const;

  // Calls `done` once, on any thread: OK if requests can be answered, else why not.
  void ready(std::function<void(absl::Status)> done) const;
  // What gRPC's health service answers.
  void set_serving(bool serving);

 private:
  struct Parts;
  explicit App(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ragcache::controller
