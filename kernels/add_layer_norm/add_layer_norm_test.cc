#include "kernels/add_layer_norm/add_layer_norm.h"

#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(AddLayerNorm, AgreesWithTheReferenceOverWidthsAndTails) {
  std::mt19937 random(9);
  ThreadPool pool(2);
  for (int64_t width : {1, 5, 8, 17, 384, 1023}) {
    for (int64_t n_tokens : {1, 2, 50}) {
      SCOPED_TRACE(testing::Message() << n_tokens << " tokens of " << width);
      Guarded x(n_tokens * width), branch(n_tokens * width);
      Guarded bias(width), weight(width), norm_bias(width);
      fill_normal(x, random, 4.0f);
      for (Guarded* buffer : {&branch, &bias, &weight, &norm_bias}) fill_normal(*buffer, random);
      const LayerNorm norm = {weight.data(), norm_bias.data(), 1e-12f};
      Guarded expected = x;
      for (int64_t t = 0; t < n_tokens; ++t) {
        add_layer_norm_reference(expected.data() + t * width, branch.data() + t * width,
                                 bias.data(), norm, width);
      }
      add_layer_norm(x.data(), branch.data(), bias.data(), norm, n_tokens, width, pool);
      // One value has no variance: rounding alone decides what is divided by almost nothing.
      if (width > 1) expect_close(x, expected, 2e-5f);
      x.expect_intact("x");
    }
  }
}

TEST(AddLayerNorm, ReferenceGivesMeanZeroAndVarianceOne) {
  float x[] = {1, 2, 3, 6};
  const float branch[] = {1, 0, 1, 2}, bias[] = {0, 2, 2, 2};
  const float weight[] = {1, 1, 1, 2}, norm_bias[] = {0, 0, 0, 1};
  // The sums 2, 4, 6, 10 have mean 5.5 and variance 8.75.
  add_layer_norm_reference(x, branch, bias, {weight, norm_bias, 0.0f}, 4);
  EXPECT_NEAR(x[0], -1.1832160f, 1e-6);
  EXPECT_NEAR(x[1], -0.5070926f, 1e-6);
  EXPECT_NEAR(x[2], 0.1690309f, 1e-6);
  EXPECT_NEAR(x[3], 2 * 1.5212777f + 1, 1e-6);
}

}  // namespace
}  // namespace ragcache::kernels
