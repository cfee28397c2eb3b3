#include "common/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

namespace ragcache::log {
namespace {

spdlog::logger& logger() {
  // Never destroyed: other threads' calls may end, and log, after main().
  static auto& instance = *new auto([] {
    auto created = spdlog::stderr_logger_mt("ragcache");
    created->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z",%v})");
    return created;
  }());
  return *instance;
}

void write(spdlog::level::level_enum level, std::string_view name, std::string_view message,
           Fields fields) {
  if (!logger().should_log(level)) return;
  nlohmann::ordered_json line;
  line["level"] = name;
  line["message"] = message;
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.name)] = value; },
               field.value.value);
  }
  // The pattern opens the object with the time; the rest of it follows without its brace.
  std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  logger().log(level, std::string_view(text).substr(1, text.size() - 2));
}

}  // namespace

void set_level(Level level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void debug(std::string_view message, Fields fields) {
  write(spdlog::level::debug, "debug", message, fields);
}
void info(std::string_view message, Fields fields) {
  write(spdlog::level::info, "info", message, fields);
}
void warn(std::string_view message, Fields fields) {
  write(spdlog::level::warn, "warn", message, fields);
}
void error(std::string_view message, Fields fields) {
  write(spdlog::level::err, "error", message, fields);
}

}  // namespace ragcache::log
