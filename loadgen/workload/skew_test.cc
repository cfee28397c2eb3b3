#include "loadgen/workload/skew.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using ::testing::HasSubstr;
using Requests = std::vector<std::vector<uint32_t>>;

TEST(Skew, CountsTokensBehindTheSameDocuments) {
  // 0,1 | 0,2 | 1,0 | 0,1 | 2: cached are 0 of the second, 0 and 1 of the fourth.
  const Requests requests{{0, 1}, {0, 2}, {1, 0}, {0, 1}, {2}};
  const std::vector<uint32_t> tokens{100, 20, 3};
  const Skew skew = skew_of(requests, tokens, 0, 1);
  const double all = 4 * 100 + 3 * 20 + 2 * 3;
  EXPECT_DOUBLE_EQ(skew.requests.cached_share, 220 / all);
  EXPECT_DOUBLE_EQ(skew.requests.warm_cached_share, 220 / all);
  EXPECT_DOUBLE_EQ(skew.requests.ceiling(), all / (all - 220));
  // What the warm-up brought in counts for those behind it.
  EXPECT_DOUBLE_EQ(skew_of(requests, tokens, 2, 1).requests.warm_cached_share, 120 / 243.0);
  EXPECT_DOUBLE_EQ(skew_of(requests, tokens, 2, 1).requests.cached_share, 220 / all);
  EXPECT_EQ(skew_of(requests, tokens, 9, 1).requests.warm_cached_share, 0);
}

TEST(Skew, TakesTheMostWantedThreePercentOfAllDocuments) {
  // Of 67 documents those are 3, rounded up.
  const std::vector<uint32_t> tokens(67, 10);
  const Requests requests{{5, 6}, {5, 7}, {5}, {6}, {8}};
  EXPECT_DOUBLE_EQ(skew_of(requests, tokens, 0, 1).requests.top_share, 6 / 7.0);
}

TEST(Skew, OfEvenRequestsIsThatOfUniformDraws) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    Random random(seed);
    Requests requests(2000);
    for (auto& request : requests) request = {static_cast<uint32_t>(random() % 500)};
    const Skew skew = skew_of(requests, std::vector<uint32_t>(500, 10), 100, seed + 100);
    EXPECT_NEAR(skew.requests.top_share, skew.uniform.top_share, 0.01);
    EXPECT_NEAR(skew.requests.cached_share, skew.uniform.cached_share, 0.01);
    // Of n documents drawn m times, n (1 - (1 - 1/n)^m) were drawn at all.
    EXPECT_NEAR(skew.uniform.cached_share, 1 - 500 * (1 - std::pow(1 - 1 / 500.0, 2000)) / 2000,
                0.005);
  }
}

TEST(Skew, TakesRequestsThatHaveADocumentTwiceOrNone) {
  const Skew skew = skew_of(Requests{{0, 0}, {}, {0, 0}}, std::vector<uint32_t>{8}, 0, 1);
  EXPECT_DOUBLE_EQ(skew.requests.cached_share, 0.5);
  EXPECT_EQ(skew_of(Requests{}, std::vector<uint32_t>{}, 0, 1).requests.top_share, 0);
}

TEST(Skew, OfAWorkloadIsByTheDocumentsThatWereFound) {
  Workload workload{.name = "test"};
  workload.documents = {{.id = "a", .tokens = 30}, {.id = "b", .tokens = 10}};
  workload.requests = {{.documents = {1}}, {.documents = {1}}};
  EXPECT_DOUBLE_EQ(skew_of(workload, 0, 1).requests.cached_share, 0.5);
  const std::vector<std::vector<std::string>> found{{"a", "b"}, {"a"}, {"b"}};
  EXPECT_DOUBLE_EQ(skew_of(workload, found, 0, 1)->requests.cached_share, 30 / 80.0);
  const std::vector<std::vector<std::string>> strange{{"c"}};
  EXPECT_THAT(std::string(skew_of(workload, strange, 0, 1).status().message()),
              HasSubstr("documents: c is not one of test"));
}

}  // namespace
}  // namespace ragcache::loadgen
