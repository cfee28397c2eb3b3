#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "common/process/program.h"

namespace ragcache {

// What an orchestrator asks of a process by HTTP: /livez (it runs), /readyz (it can serve; 503 and
// the reason if not) and /metrics (Prometheus' text format). Up before the service is, so that a
// long start can be told from a dead process.
class OperationsServer {
 public:
  // `address`: host:port. FAILED_PRECONDITION if it is in use.
  static absl::StatusOr<std::unique_ptr<OperationsServer>> start(const std::string& address,
                                                                 metrics::Registry registry);
  ~OperationsServer();

  const std::string& address() const;

  // From now on /readyz asks this; before it is not ready because it is "starting".
  void set_service(std::function<void(RunningService::Ready)> ready);
  void set_stopping();

 private:
  struct State;
  explicit OperationsServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ragcache
