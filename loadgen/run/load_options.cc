#include "loadgen/run/load_options.h"

#include <CLI/CLI.hpp>

namespace ragcache::loadgen {

void add_load_options(CLI::App& command, LoadOptions& options) {
  const auto add = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str();
  };
  add("--timeout", options.timeout_s, "seconds for a whole answer")
      ->check(CLI::Range(0.001, 86'400.0));
  add("--max-in-flight", options.max_in_flight, "requests beyond these are not sent, and fail")
      ->check(CLI::Range(1, 1 << 20));
  add("--max-failures", options.max_failures_in_row,
      "end after so many failures in a row; 0: never");
}

}  // namespace ragcache::loadgen
