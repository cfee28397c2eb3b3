#include "services/controller/schedule/load_or_compute.h"

#include <gtest/gtest.h>

namespace ragcache::controller {
namespace {

// A token takes 1/1024 s behind nothing, and twice that behind 1024 cached tokens and more. Nothing
// that is computed from it below is rounded.
PrefillCost table() { return *PrefillCost::create({0, 1024}, {256, 1280}, {0.25, 1.25, 0.5, 2.5}); }

constexpr double kRate = 1024;  // bytes a second

TEST(WorthLoading, IsWhatComesSoonerThanComputing) {
  // 1024 tokens take 1 s, the latter half of them behind the other 0.75 s.
  HostHit hit{.device_tokens = 0, .host_tokens = 512, .new_tokens = 512, .bytes = 256};
  EXPECT_FALSE(worth_loading(hit, kRate, table())) << "as long as computing";
  hit.bytes = 255;
  EXPECT_TRUE(worth_loading(hit, kRate, table()));
  hit.bytes = 257;
  EXPECT_FALSE(worth_loading(hit, kRate, table()));
  EXPECT_TRUE(worth_loading(hit, 2 * kRate, table())) << "a faster tier";
}

TEST(WorthLoading, CountsWhatTheDevicesPartMakesOfThePrefill) {
  // Behind 1024 tokens it is 2 s for 1024, and 1 s for the latter half of them.
  HostHit hit{.device_tokens = 1024, .host_tokens = 512, .new_tokens = 512, .bytes = 1023};
  EXPECT_TRUE(worth_loading(hit, kRate, table()));
  hit.bytes = 1024;
  EXPECT_FALSE(worth_loading(hit, kRate, table()));
}

TEST(WorthLoading, IsNothingThatMakesThePrefillLonger) {
  // At a rate at which bytes cost next to nothing.
  const PrefillCost steep = *PrefillCost::create({0, 1024}, {256, 1280}, {0.25, 1.25, 8, 40});
  const HostHit hit{.device_tokens = 0, .host_tokens = 1024, .new_tokens = 512, .bytes = 1};
  EXPECT_FALSE(worth_loading(hit, 1e12, steep));
  EXPECT_TRUE(worth_loading(hit, 1e12, table()));
}

}  // namespace
}  // namespace ragcache::controller
