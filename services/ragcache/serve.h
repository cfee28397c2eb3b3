#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/config/options.h"
#include "common/process/program.h"
#include "services/controller/config.h"
#include "services/gateway/config.h"
#include "services/retrieval/config.h"
#include "services/worker/config.h"

namespace ragcache {

// All four services in one process, joined by gRPC over unix sockets in the state folder: the same
// service classes and the same wire as on many machines.
class Serve {
 public:
  // Fills the table with every service's rows.
  Serve();
  OptionTable& table() { return table_; }

  // Starts the services and returns when SIGINT or SIGTERM has come and they have stopped; or the
  // Status of what could not be started. While it runs, `gateway.address` in the state folder holds
  // host:port.
  absl::Status run();

 private:
  OptionTable table_;
  std::string state_dir_;
  LogOption log_option_{table_};
  worker::Config worker_;
  retrieval::Config retrieval_;
  controller::Config controller_;
  gateway::Config gateway_;
};

}  // namespace ragcache
