#include "loadgen/report/environment.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/strings.h"
#include "loadgen/report/build_info.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {
namespace {

constexpr const char* kUnknown = "unknown";

std::string cpu_model() {
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return kUnknown;
}

int usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string kernel() {
  utsname name;
  return uname(&name) == 0 ? str_cat(name.sysname, " ", name.release) : kUnknown;
}

std::string utc(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm parts;
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
  return text;
}

std::vector<std::string> own_arguments() {
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline");
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string quoted(const std::string& argument) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
    return argument;
  }
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string command_line(const std::vector<std::string>& arguments) {
  std::string line;
  bool secret = false;  // the argument is the value of a key
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    const size_t equals = argument.find('=');
    const bool key = argument.starts_with("--") && argument.substr(0, equals).ends_with("key");
    if (secret) {
      line += "...";
    } else if (key && equals != std::string::npos) {
      line += argument.substr(0, equals) + "=...";
    } else {
      line += quoted(argument);
    }
    secret = !secret && key && equals == std::string::npos;
  }
  return line;
}

Environment environment() {
  return {.commit = kBuildInfo.commit,
          .dirty = kBuildInfo.dirty,
          .build = kBuildInfo.build,
          .compiler = kBuildInfo.compiler,
          .cpu = cpu_model(),
          .cores = usable_cores(),
          .memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
          .kernel = kernel(),
          .time = utc(unix_seconds()),
          .command = command_line(own_arguments())};
}

nlohmann::json to_json(const Environment& environment) {
  return {{"commit", environment.commit},
          {"dirty", environment.dirty},
          {"build", environment.build},
          {"compiler", environment.compiler},
          {"cpu", environment.cpu},
          {"cores", environment.cores},
          {"memory_bytes", environment.memory_bytes},
          {"kernel", environment.kernel},
          {"time", environment.time},
          {"command", environment.command}};
}

std::vector<std::pair<std::string, std::string>> to_rows(const Environment& environment) {
  constexpr double kGib = 1 << 30;
  return {{"commit", environment.commit + (environment.dirty ? ", with changes" : "")},
          {"build", environment.build + ", " + environment.compiler},
          {"processor", str_cat(environment.cpu, ", ", environment.cores, " cores")},
          {"memory", fixed(static_cast<double>(environment.memory_bytes) / kGib, 1) + " GiB"},
          {"kernel", environment.kernel},
          {"time", environment.time},
          {"command", environment.command}};
}

std::string to_text(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : to_rows(environment)) text += name + ": " + value + "\n";
  return text;
}

}  // namespace ragcache::loadgen
