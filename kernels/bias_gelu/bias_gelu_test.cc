#include "kernels/bias_gelu/bias_gelu.h"

#include <cmath>

#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(BiasGelu, AgreesWithTheReferenceOverWidthsAndTails) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  for (int64_t width : {1, 7, 8, 9, 384, 1537}) {
    for (int64_t n_tokens : {1, 3, 40}) {
      SCOPED_TRACE(testing::Message() << n_tokens << " tokens of " << width);
      Guarded x(n_tokens * width), bias(width);
      fill_normal(x, random, 3.0f);
      fill_normal(bias, random);
      x[0] = 60.0f;
      x[n_tokens * width - 1] = -60.0f;
      Guarded expected = x;
      for (int64_t t = 0; t < n_tokens; ++t) {
        bias_gelu_reference(expected.data() + t * width, bias.data(), width);
      }
      bias_gelu(x.data(), bias.data(), n_tokens, width, pool);
      expect_close(x, expected, 1e-6f);
      x.expect_intact("x");
    }
  }
}

TEST(BiasGelu, ReferenceHasTheKnownValues) {
  // z · Φ(z) from tables of the normal distribution.
  float x[] = {0.0f, 1.0f, -1.0f, 2.0f};
  const float bias[] = {0.0f, 0.0f, 0.0f, -3.0f};
  bias_gelu_reference(x, bias, 4);
  EXPECT_FLOAT_EQ(x[0], 0.0f);
  EXPECT_NEAR(x[1], 0.8413447f, 1e-6);
  EXPECT_NEAR(x[2], -0.1586553f, 1e-6);
  EXPECT_NEAR(x[3], -0.1586553f, 1e-6);
}

}  // namespace
}  // namespace ragcache::kernels
