#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"

namespace ragcache {

// What one option row says about itself. `min` and `max` bound numbers, both included; `choices`
// lists what a string may be.
struct OptionTraits {
  std::string unit;
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  std::vector<std::string> choices;
  bool required = false;  // a string that may not be empty
  std::string doc;
};

// The options of a process: one row each, from which come the command line, the environment, the
// YAML file, validation, --print-config and the documentation.
//
// An option `kv_memory_mib` is read, later sources first: flag --kv-memory-mib, environment
// RAGCACHE_KV_MEMORY_MIB, key kv_memory_mib of the YAML file, the default in its target. Two
// components may add the same name: both targets get the value. Single-threaded, start-up only.
class OptionTable {
 public:
  struct Row {
    std::string name;
    OptionTraits traits;
    std::string default_text;
    std::string value_text;
    std::string source;  // default, file, environment or flag
    bool is_flag;        // a boolean: --name alone means true
    bool is_number;
    // Parses, checks and, if all is well, assigns to every target.
    std::vector<std::function<absl::Status(const std::string&)>> assign;

    std::string flag() const;         // --kv-memory-mib
    std::string environment() const;  // RAGCACHE_KV_MEMORY_MIB
  };

  // T: std::string, bool, an integer type or double. `*target` holds the default.
  template <typename T>
  void add(const std::string& name, T* target, OptionTraits traits) {
    if constexpr (std::is_same_v<T, std::string>) {
      add_row(name, traits, *target, false, false, [target, name, traits](const std::string& text) {
        return parse_string(name, traits, text, target);
      });
    } else if constexpr (std::is_same_v<T, bool>) {
      add_row(name, traits, *target ? "true" : "false", true, false,
              [target, name](const std::string& text) { return parse_bool(name, text, target); });
    } else if constexpr (std::is_floating_point_v<T>) {
      add_row(name, traits, format_number(*target), false, true,
              [target, name, traits](const std::string& text) {
                double value = 0;
                absl::Status status = parse_number(name, traits, text, false, &value);
                if (status.ok()) *target = static_cast<T>(value);
                return status;
              });
    } else {
      static_assert(std::is_integral_v<T>);
      traits.min = std::max(traits.min, static_cast<double>(std::numeric_limits<T>::min()));
      traits.max = std::min(traits.max, static_cast<double>(std::numeric_limits<T>::max()));
      add_row(name, traits, std::to_string(*target), false, true,
              [target, name, traits](const std::string& text) {
                double value = 0;
                absl::Status status = parse_number(name, traits, text, true, &value);
                if (status.ok()) *target = static_cast<T>(value);
                return status;
              });
    }
  }

  // Reads all sources. INVALID_ARGUMENT lists every error at once, each naming option, bound and
  // source; unknown keys of the file are errors. `file` may be empty.
  absl::Status load(const std::string& file, const std::map<std::string, std::string>& flags);

  // YAML: every option with its value, and where that came from as a comment.
  std::string print() const;

  // One Markdown table: option, default, bounds, what it does.
  std::string to_markdown() const;

  const std::vector<Row>& rows() const { return rows_; }

 private:
  void add_row(const std::string& name, const OptionTraits& traits, std::string default_text,
               bool is_flag, bool is_number,
               std::function<absl::Status(const std::string&)> assign);
  Row* find(const std::string& name);

  static std::string format_number(double value);
  static absl::Status parse_string(const std::string& name, const OptionTraits& traits,
                                   const std::string& text, std::string* value);
  static absl::Status parse_bool(const std::string& name, const std::string& text, bool* value);
  static absl::Status parse_number(const std::string& name, const OptionTraits& traits,
                                   const std::string& text, bool integral, double* value);

  std::vector<Row> rows_;
};

}  // namespace ragcache
