#include "loadgen/compare/mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ragcache::loadgen {
namespace {

using testing::HasSubstr;

constexpr TierSizes kSizes{
    .device_mib = 100, .host_mib = 400, .device_tokens = 4500, .host_tokens = 18000};

// The option's value, or nothing.
std::string value_of(const Mode& mode, const std::string& option) {
  for (size_t i = 0; i + 1 < mode.flags.size(); i += 2) {
    if (mode.flags[i] == option) return mode.flags[i + 1];
  }
  return "";
}

TEST(Mode, GivesEachTheSameDevice) {
  for (const char* name : {"none", "gpu-lru", "ragcache", "ragcache-no-host", "ragcache-pgdsf"}) {
    const auto mode = make_mode(name, kSizes);
    ASSERT_TRUE(mode.ok()) << mode.status();
    EXPECT_EQ(value_of(*mode, "--kv-memory-mib"), "100") << name;
    EXPECT_EQ(mode->cache.device_tokens, 4500u);
    EXPECT_EQ(mode->flags.size() % 2, 0u);
  }
}

TEST(Mode, GivesTheHostToThoseThatUseIt) {
  for (const auto& [name, mib] : {std::pair{"none", "0"},
                                  {"gpu-lru", "0"},
                                  {"ragcache", "400"},
                                  {"ragcache-no-host", "0"},
                                  {"ragcache-lfu", "400"}}) {
    const auto mode = make_mode(name, kSizes);
    EXPECT_EQ(value_of(*mode, "--host-memory-mib"), mib) << name;
    EXPECT_EQ(mode->cache.host_tokens > 0, std::string(mib) != "0") << name;
  }
}

TEST(Mode, TurnsReuseOffForNone) {
  const auto none = make_mode("none", kSizes);
  EXPECT_FALSE(none->cache.reuses);
  EXPECT_EQ(value_of(*none, "--prefix-cache"), "false");
  EXPECT_EQ(value_of(*make_mode("ragcache", kSizes), "--prefix-cache"), "");
}

TEST(Mode, ForgetsInThePapersBaseline) {
  const auto mode = make_mode("gpu-lru", kSizes);
  EXPECT_EQ(value_of(*mode, "--cache-policy"), "lru");
  EXPECT_EQ(value_of(*mode, "--cache-history"), "false");
}

TEST(Mode, NamesThoseThereAre) {
  for (const char* name : {"", "all", "ragcache-", "ragcache-fifo", "GPU-LRU"}) {
    EXPECT_THAT(
        std::string(make_mode(name, kSizes).status().message()),
        HasSubstr("must be of none, gpu-lru, ragcache, ragcache-no-host, ragcache-adaptive"))
        << name;
  }
}

}  // namespace
}  // namespace ragcache::loadgen
