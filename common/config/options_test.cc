#include "common/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ragcache {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Config {
  std::string model;
  uint32_t blocks = 64;
  double share = 0.5;
  bool verify = false;
  std::string policy = "lru";
};

OptionTable table_of(Config& config) {
  OptionTable table;
  table.add("model", &config.model, {.required = true, .doc = "path of the model file"});
  table.add("kv_blocks", &config.blocks, {.unit = "blocks", .min = 1, .max = 1000, .doc = "pool"});
  table.add("share", &config.share, {.min = 0, .max = 1, .doc = "share"});
  table.add("verify", &config.verify, {.doc = "check"});
  table.add("policy", &config.policy, {.choices = {"lru", "lfu"}, .doc = "policy"});
  return table;
}

std::string write_file(const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("options_test_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << text;
  return path;
}

TEST(OptionTable, LaterSourcesWinAndAreNamed) {
  Config config;
  OptionTable table = table_of(config);
  const std::string file = write_file("model: from-file\nkv_blocks: 10\nshare: 0.25\n");
  setenv("RAGCACHE_KV_BLOCKS", "20", 1);
  setenv("RAGCACHE_SHARE", "0.75", 1);
  absl::Status status = table.load(file, {{"share", "1"}, {"verify", "true"}});
  unsetenv("RAGCACHE_KV_BLOCKS");
  unsetenv("RAGCACHE_SHARE");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.model, "from-file");
  EXPECT_EQ(config.blocks, 20u);
  EXPECT_EQ(config.share, 1.0);
  EXPECT_TRUE(config.verify);
  EXPECT_THAT(
      table.print(),
      AllOf(HasSubstr("model: from-file  # file"), HasSubstr("kv_blocks: 20  # environment"),
            HasSubstr("share: 1  # flag"), HasSubstr("policy: lru  # default")));
}

TEST(OptionTable, ListsEveryErrorAtOnceWithBoundAndSource) {
  Config config;
  OptionTable table = table_of(config);
  const std::string file = write_file("kv_blocks: 0\nno_such: 1\nshare: [1, 2]\n");
  absl::Status status = table.load(file, {{"share", "nan"}, {"policy", "fifo"}, {"verify", "2"}});
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model: must be given"),
                    HasSubstr("kv_blocks: is \"0\", must be a whole number from 1 to 1000 blocks "
                              "(from file)"),
                    HasSubstr("unknown option no_such"), HasSubstr("share: must be a single value"),
                    HasSubstr("share: is \"nan\", must be a number from 0 to 1 (from flag)"),
                    HasSubstr("policy: is \"fifo\", must be one of lru, lfu"),
                    HasSubstr("verify: is \"2\", must be true or false")));
}

TEST(OptionTable, KeepsTargetsWithinTheirIntegerType) {
  uint8_t small = 1;
  OptionTable table;
  table.add("small", &small, {.doc = "eight bits"});
  EXPECT_FALSE(table.load("", {{"small", "256"}}).ok());
  EXPECT_FALSE(table.load("", {{"small", "-1"}}).ok());
  EXPECT_FALSE(table.load("", {{"small", "1.5"}}).ok());
  EXPECT_EQ(small, 1);
  EXPECT_TRUE(table.load("", {{"small", "255"}}).ok());
  EXPECT_EQ(small, 255);
}

TEST(OptionTable, GivesOneValueToEveryComponentThatAskedForTheName) {
  std::string first;
  std::string second;
  OptionTable table;
  table.add("model", &first, {.doc = "model"});
  table.add("model", &second, {.doc = "model"});
  ASSERT_TRUE(table.load("", {{"model", "m.gguf"}}).ok());
  EXPECT_EQ(first, "m.gguf");
  EXPECT_EQ(second, "m.gguf");
  EXPECT_EQ(table.rows().size(), 1u);
}

TEST(OptionTable, NamesTheFileItCannotRead) {
  Config config;
  OptionTable table = table_of(config);
  EXPECT_THAT(std::string(table.load("/no/such/file.yaml", {{"model", "m"}}).message()),
              HasSubstr("/no/such/file.yaml"));
  EXPECT_THAT(std::string(table.load(write_file("a: [b"), {{"model", "m"}}).message()),
              HasSubstr("options_test_"));
}

}  // namespace
}  // namespace ragcache
