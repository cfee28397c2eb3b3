#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

// One JSON object a line on stderr: {"time","level","message", fields…}. Any thread. Prompt text
// does not belong in a log.
namespace ragcache::log {

enum class Level { kDebug, kInfo, kWarn, kError };

struct Value {
  Value(std::string_view v) : value(v) {}
  Value(const char* v) : value(std::string_view(v)) {}
  Value(const std::string& v) : value(std::string_view(v)) {}
  Value(bool v) : value(v) {}
  Value(double v) : value(v) {}
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Value(T v)
      : value(static_cast<int64_t>(v)) {}

  std::variant<std::string_view, bool, double, int64_t> value;
};

struct Field {
  std::string_view name;
  Value value;
};

using Fields = std::initializer_list<Field>;

// Lines below `level` are dropped. Default: info.
void set_level(Level level);

void debug(std::string_view message, Fields fields = {});
void info(std::string_view message, Fields fields = {});
void warn(std::string_view message, Fields fields = {});
void error(std::string_view message, Fields fields = {});

}  // namespace ragcache::log
