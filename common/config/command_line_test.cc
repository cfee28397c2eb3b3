#include "common/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace ragcache {
namespace {

using ::testing::HasSubstr;

struct Config {
  bool verify = false;
  bool history = true;
  uint32_t blocks = 64;
};

// What the flags make of the defaults, or the exit status.
std::pair<Config, std::optional<int>> parse(std::vector<std::string> arguments) {
  Config config;
  OptionTable table;
  table.add("verify", &config.verify, {.doc = "check"});
  table.add("history", &config.history, {.doc = "remember"});
  table.add("kv_blocks", &config.blocks, {.min = 1, .max = 1000, .doc = "pool"});
  CLI::App app("a program", "program");
  OptionFlags flags(app, table);
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  std::optional<int> done =
      parse_command_line(app, static_cast<int>(pointers.size()), pointers.data());
  if (!done.has_value()) done = flags.load();
  return {config, done};
}

TEST(OptionFlags, TakesABooleanAloneOrWithItsValue) {
  EXPECT_TRUE(parse({"--verify"}).first.verify);
  EXPECT_TRUE(parse({"--verify", "true"}).first.verify);
  EXPECT_TRUE(parse({"--verify", "--history", "false"}).first.verify);
  EXPECT_FALSE(parse({"--verify", "--history", "false"}).first.history);
  EXPECT_FALSE(parse({"--history=false"}).first.history);
  EXPECT_TRUE(parse({"--history=false", "--history"}).first.history);
  const auto [config, done] = parse({"--verify", "--kv-blocks", "9"});
  EXPECT_FALSE(done.has_value());
  EXPECT_TRUE(config.verify);
  EXPECT_EQ(config.blocks, 9u);
}

TEST(OptionFlags, NamesABooleanThatIsNone) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"--history", "perhaps"}).second, kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("history: is \"perhaps\""));
}

}  // namespace
}  // namespace ragcache
