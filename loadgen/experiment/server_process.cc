#include "loadgen/experiment/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/http/client.h"
#include "common/strings.h"

extern char** environ;

namespace ragcache::loadgen {
namespace {

constexpr Duration kStopTimeout = std::chrono::seconds(30);
constexpr Duration kPollInterval = std::chrono::milliseconds(100);
constexpr size_t kLogEndBytes = 2000;

// "http://host:port" and "/path".
std::pair<std::string, std::string> split_path(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t slash = url.find('/', scheme == std::string::npos ? 0 : scheme + 3);
  if (slash == std::string::npos) return {url, "/"};
  return {url.substr(0, slash), url.substr(slash)};
}

bool answers(const std::string& url) {
  const auto [server, path] = split_path(url);
  absl::StatusOr<http::Client> client =
      http::Client::create(server, {.connect_timeout_ms = 1000, .idle_timeout_ms = 5000});
  if (!client.ok()) return false;
  const absl::StatusOr<http::Response> response = client->fetch({.target = path});
  return response.ok() && response->status == 200;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::start(Options options) {
  const int log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return absl::InvalidArgumentError(
        str_cat("cannot write ", options.log, ": ", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (std::string& argument : options.command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('='));
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [name](const auto& own) { return own.first == name; });
    if (!replaced) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  // Tells errno if there is no such program; closes at exec otherwise.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(log);
    return absl::InternalError(str_cat("pipe: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {  // only what may be called after a fork of a process with threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);  // a Ctrl-C is its owner's, which then stops it
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execvpe(arguments[0], arguments.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(failure[1], &error, sizeof(error));
    _exit(127);
  }
  close(log);
  close(failure[1]);
  int error = 0;
  const ssize_t got = pid < 0 ? 0 : read(failure[0], &error, sizeof(error));
  close(failure[0]);
  if (pid < 0) return absl::InternalError("fork failed");
  if (got == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(
        str_cat("cannot run ", options.command[0], ": ", std::strerror(error)));
  }
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    const int failure_of_open = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return absl::UnavailableError(str_cat("pidfd_open: ", std::strerror(failure_of_open)));
  }
  return std::unique_ptr<ServerProcess>(new ServerProcess(std::move(options), pid, pid_fd));
}

ServerProcess::~ServerProcess() {
  if (pid_ != 0) stop().IgnoreError();
  close(pid_fd_);
}

absl::Status ServerProcess::wait_until(const std::function<bool()>& is_done,
                                       const std::string& what, Duration timeout) {
  const TimePoint end = steady_now() + timeout;
  while (!is_done()) {
    if (options_.interrupted) {
      if (absl::Status status = options_.interrupted(); !status.ok()) return status;
    }
    if (wait_end(kPollInterval)) {
      return absl::UnavailableError(str_cat(options_.command[0], " ended:\n", log_end()));
    }
    if (steady_now() > end) {
      return absl::DeadlineExceededError(
          str_cat(what, " took longer than ", to_seconds(timeout), " s; see ", options_.log));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerProcess::wait_ready(const std::string& url, Duration timeout) {
  return wait_until([&url] { return answers(url); }, "to be ready at " + url, timeout);
}

absl::Status ServerProcess::stop() {
  if (pid_ == 0 || wait_end(Duration::zero())) {
    return absl::UnavailableError(str_cat(options_.command[0], " had ended:\n", log_end()));
  }
  kill(pid_, SIGTERM);
  if (wait_end(kStopTimeout)) return absl::OkStatus();
  kill(pid_, SIGKILL);
  wait_end(kStopTimeout);
  return absl::OkStatus();
}

bool ServerProcess::wait_end(Duration timeout) {
  if (pid_ == 0) return true;
  pollfd ended{.fd = pid_fd_, .events = POLLIN};
  const TimePoint end = steady_now() + timeout;
  int ready = 0;
  do {
    const auto left = std::max(Duration::zero(), end - steady_now());
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ready = poll(&ended, 1, static_cast<int>(ms));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return false;
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
  return true;
}

std::string ServerProcess::log_end() const {
  std::ifstream file(options_.log);
  std::stringstream whole;
  whole << file.rdbuf();
  const std::string text = whole.str();
  return text.substr(text.size() - std::min(text.size(), kLogEndBytes));
}

std::string beside_this_program(const std::string& file) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / file).string();
}

absl::StatusOr<uint16_t> free_port() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      bind(socket_fd, generic, size) == 0 && getsockname(socket_fd, generic, &size) == 0;
  close(socket_fd);
  if (!bound) return absl::UnavailableError("no port of 127.0.0.1 is free");
  return ntohs(address.sin_port);
}

}  // namespace ragcache::loadgen
