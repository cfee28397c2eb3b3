#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/config/options.h"

namespace CLI {
class App;
}

namespace ragcache {

// Exit statuses of every command: done, it failed, it was asked wrongly or cannot start so.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// The exit status of a command that ended so; why it failed goes to standard error.
int report(std::string_view program, const absl::Status& status);

// Nothing if the command shall go on, else the exit status: the help or the error has been printed.
std::optional<int> parse_command_line(CLI::App& cli, int argc, char** argv);

// The rows of a table as flags of a command, with --config FILE and --print-config.
class OptionFlags {
 public:
  // Adds the flags. `table` has its rows; both outlive this.
  OptionFlags(CLI::App& command, OptionTable& table);
  OptionFlags(const OptionFlags&) = delete;
  OptionFlags& operator=(const OptionFlags&) = delete;

  // After parsing: reads every source into the table. Nothing if the command shall go on, else the
  // exit status: the errors, or the configuration asked for, have been printed.
  std::optional<int> load();

 private:
  OptionTable& table_;
  const std::string command_;
  std::string file_;
  bool print_ = false;
  std::map<std::string, std::string> flags_;
};

}  // namespace ragcache
