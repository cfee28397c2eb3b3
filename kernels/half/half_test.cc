#include "kernels/half/half.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace ragcache::kernels {
namespace {

TEST(Half, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t half = 0; half <= 0xFFFF; ++half) {
    const float value = from_half(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_half(to_half(value)))) << half;
    } else {
      ASSERT_EQ(to_half(value), half);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const float low = from_half(static_cast<uint16_t>(half));
    const float high = half == 0x7BFF ? 65536.0f : from_half(static_cast<uint16_t>(half + 1));
    const float middle = 0.5f * (low + high);
    ASSERT_EQ(to_half(middle), half + half % 2);
    ASSERT_EQ(to_half(std::nextafter(middle, low)), half);
    ASSERT_EQ(to_half(-std::nextafter(middle, high)), (half + 1) | 0x8000);
  }
}

TEST(Half, KnowsItsLandmarks) {
  EXPECT_EQ(from_half(0x3800), 0.5f);
  EXPECT_EQ(from_half(0xC000), -2.0f);
  EXPECT_EQ(from_half(0x0001), 0x1p-24f);
  EXPECT_EQ(from_half(0x7BFF), 65504.0f);
  EXPECT_EQ(to_half(1e30f), 0x7C00);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(to_half(1e-30f), 0);
}

}  // namespace
}  // namespace ragcache::kernels
