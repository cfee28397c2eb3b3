#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/options.h"
#include "common/metrics/metrics.h"

namespace ragcache {

// A service that has been started, as its process sees it.
struct RunningService {
  using Ready = std::function<void(absl::Status)>;

  // Calls its argument once, soon, on any thread: OK if requests can be served, else why not.
  std::function<void(Ready)> ready;
  // What the service's gRPC health says; called as readiness changes. May be empty.
  std::function<void(bool)> set_serving;
  std::function<void()> stop;
};

// One of the executables: its options, its --help, and how its service starts.
struct Program {
  std::string name;      // ragcache-worker
  std::string summary;   // one line
  std::string examples;  // lines of --help
  std::function<void(OptionTable&)> add_options;
  // Where /livez, /readyz and /metrics are served, by default; empty: the service has its own.
  std::string http_listen;
  std::function<absl::StatusOr<RunningService>(metrics::Registry)> start;
};

// The option `log_level`.
class LogOption {
 public:
  explicit LogOption(OptionTable& table);
  // REQUIRES: the table is loaded.
  void apply() const;

 private:
  std::string level_ = "info";
};

// Every option that a program reads.
struct ProgramOptions {
  explicit ProgramOptions(const Program& program);
  ProgramOptions(const ProgramOptions&) = delete;
  ProgramOptions& operator=(const ProgramOptions&) = delete;

  OptionTable table;
  LogOption log{table};
  std::string http_listen;
};

// Holds back SIGINT and SIGTERM from its construction on; wait() returns when one has come.
// Construct before any thread is started, so that none of them gets the signals.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();

  // Calls `tick` every so often while it waits.
  void wait(const std::function<void()>& tick = [] {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads options from command line, environment and YAML, starts the service, and stops it at
// SIGINT or SIGTERM. Returns the process's exit status.
int run_program(const Program& program, int argc, char** argv);

}  // namespace ragcache
