#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"

namespace ragcache::loadgen {

// A server as a child process, which ends with its owner, even if that is killed. One thread.
class ServerProcess {
 public:
  struct Options {
    std::vector<std::string> command;                              // looked up in PATH
    std::vector<std::pair<std::string, std::string>> environment;  // beside this process's own
    std::string log;  // file that its output is appended to
    // Not OK once waiting for it is to end; none: never.
    std::function<absl::Status()> interrupted;
  };
  // NOT_FOUND if there is no such program.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> start(Options options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits until `is_done`, asking now and again. UNAVAILABLE with the end of its log if it ends
  // before that, DEADLINE_EXCEEDED with `what` if it takes longer than `timeout`.
  absl::Status wait_until(const std::function<bool()>& is_done, const std::string& what,
                          Duration timeout);
  // The same until GET url answers 200.
  absl::Status wait_ready(const std::string& url, Duration timeout);

  // Asks it to end, and makes it if it does not within half a minute. UNAVAILABLE if it had ended
  // already.
  absl::Status stop();

 private:
  ServerProcess(Options options, pid_t pid, int pid_fd)
      : options_(std::move(options)), pid_(pid), pid_fd_(pid_fd) {}

  // Whether it ends within that time.
  bool wait_end(Duration timeout);
  std::string log_end() const;

  const Options options_;
  pid_t pid_;  // 0 once it has ended
  int pid_fd_;
};

// The path of that file in the folder of this process's own program.
std::string beside_this_program(const std::string& file);

// A port of this machine that nobody listens on now.
absl::StatusOr<uint16_t> free_port();

}  // namespace ragcache::loadgen
