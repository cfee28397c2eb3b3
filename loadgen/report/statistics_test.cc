#include "loadgen/report/statistics.h"

#include <gtest/gtest.h>

namespace ragcache::loadgen {
namespace {

// Percentiles as numpy.percentile gives them.
TEST(Statistics, InterpolatesBetweenRanks) {
  const Statistics figures = statistics({40, 10, 20, 30});
  EXPECT_DOUBLE_EQ(figures.mean, 25);
  EXPECT_DOUBLE_EQ(figures.p50, 25);
  EXPECT_DOUBLE_EQ(figures.p90, 37);
  EXPECT_DOUBLE_EQ(figures.p99, 39.7);
  EXPECT_DOUBLE_EQ(figures.max, 40);
}

TEST(Statistics, TakesOneSampleAndNone) {
  const Statistics one = statistics({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(statistics({}).mean, 0);
  EXPECT_EQ(statistics({}).max, 0);
}

TEST(Statistics, TellsAFigureOfNothingFromZero) {
  EXPECT_EQ(statistics({0}).known(&Statistics::p99), 0.0);
  EXPECT_FALSE(statistics({}).known(&Statistics::p99).has_value());
}

}  // namespace
}  // namespace ragcache::loadgen
