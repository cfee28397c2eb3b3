#include "common/process/program.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "common/config/command_line.h"
#include "common/log/log.h"
#include "common/process/operations_server.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

constexpr const char* kVersion = "0.1.0";
// How soon gRPC health follows readiness.
constexpr std::chrono::seconds kTick{1};

// gRPC health as readiness has it. The service may answer late, on a thread of its own, when it is
// being stopped already: then nobody must touch its server.
struct Health {
  std::mutex mutex;
  std::function<void(bool)> set_serving;  // guarded by mutex; none once the service stops
};

absl::Status run(const Program& program, const std::string& http_listen) {
  StopSignals signals;
  auto registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<OperationsServer> operations;
  if (!http_listen.empty()) {
    RAG_ASSIGN_OR_RETURN(operations, OperationsServer::start(http_listen, registry));
    log::info("operations endpoint", {{"address", operations->address()}});
  }
  RAG_ASSIGN_OR_RETURN(const RunningService service, program.start(registry));
  if (operations != nullptr) operations->set_service(service.ready);
  const auto health = std::make_shared<Health>();
  health->set_serving = service.set_serving;
  signals.wait([&] {
    if (!service.set_serving) return;
    service.ready([health](absl::Status status) {
      std::lock_guard lock(health->mutex);
      if (health->set_serving) health->set_serving(status.ok());
    });
  });
  log::info("stopping");
  if (operations != nullptr) operations->set_stopping();
  {
    std::lock_guard lock(health->mutex);
    health->set_serving = nullptr;
  }
  service.stop();
  return absl::OkStatus();
}

}  // namespace

LogOption::LogOption(OptionTable& table) {
  table.add("log_level", &level_,
            {.choices = {"debug", "info", "warn", "error"}, .doc = "least level that is logged"});
}

void LogOption::apply() const {
  static const std::map<std::string, log::Level> kLevels = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warn", log::Level::kWarn},
                                                            {"error", log::Level::kError}};
  log::set_level(kLevels.at(level_));
}

ProgramOptions::ProgramOptions(const Program& program) : http_listen(program.http_listen) {
  if (!http_listen.empty()) {
    table.add("http_listen", &http_listen,
              {.doc = "host:port of /livez, /readyz and /metrics; empty serves none"});
  }
  program.add_options(table);
}

struct StopSignals::State {
  boost::asio::io_context context;
  boost::asio::signal_set signals{context, SIGINT, SIGTERM};
};

StopSignals::StopSignals() : state_(std::make_unique<State>()) { std::signal(SIGPIPE, SIG_IGN); }

StopSignals::~StopSignals() = default;

void StopSignals::wait(const std::function<void()>& tick) {
  boost::asio::steady_timer timer(state_->context);
  std::function<void()> next = [&] {
    timer.expires_after(kTick);
    timer.async_wait([&](const boost::system::error_code& error) {
      if (error) return;
      tick();
      next();
    });
  };
  tick();
  next();
  state_->signals.async_wait([&](const boost::system::error_code&, int) { timer.cancel(); });
  state_->context.run();
}

int run_program(const Program& program, int argc, char** argv) {
  ProgramOptions options(program);
  CLI::App cli(program.summary, program.name);
  cli.set_version_flag("--version", kVersion);
  cli.footer(
      "Each option can also be set by environment (RAGCACHE_ and its name in capitals) or in a\n"
      "YAML file; a flag wins over the environment, that over the file.\n\nExamples:\n" +
      program.examples);
  OptionFlags flags(cli, options.table);
  if (const std::optional<int> done = parse_command_line(cli, argc, argv)) return *done;
  if (const std::optional<int> done = flags.load()) return *done;
  options.log.apply();
  if (absl::Status status = run(program, options.http_listen); !status.ok()) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), std::string(status.message()).c_str());
    // What stops a service from starting is for its operator to put right.
    return kExitUsage;
  }
  return kExitDone;
}

}  // namespace ragcache
