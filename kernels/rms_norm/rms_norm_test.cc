#include "kernels/rms_norm/rms_norm.h"

#include "kernels/rms_norm/rms_norm_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(RmsNorm, AgreesWithTheReferenceOverWidthsAndTokens) {
  std::mt19937 random(1);
  ThreadPool pool(3);
  for (int64_t width : {1, 7, 8, 33, 576, 1000}) {
    for (int64_t n_tokens : {1, 2, 31, 33, 100}) {
      for (bool with_delta : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "width " << width << ", tokens " << n_tokens << ", delta " << with_delta);
        Guarded residual(n_tokens * width), delta(n_tokens * width), weight(width);
        Guarded y(n_tokens * width), expected(n_tokens * width);
        fill_normal(residual, random, 3.0f);
        fill_normal(delta, random);
        fill_normal(weight, random);
        Guarded expected_residual = residual;
        for (int64_t t = 0; t < n_tokens; ++t) {
          rms_norm_reference(expected_residual.data() + t * width,
                             with_delta ? delta.data() + t * width : nullptr, weight.data(), 1e-5f,
                             width, expected.data() + t * width);
        }
        rms_norm(residual.data(), with_delta ? delta.data() : nullptr, weight.data(), 1e-5f,
                 n_tokens, width, y.data(), pool);
        expect_close(y, expected, 1e-5f);
        expect_close(residual, expected_residual, 0.0f);
        y.expect_intact("y");
        residual.expect_intact("residual");
        if (!has_avx512()) continue;
        for (int64_t t = 0; t < n_tokens; ++t) {
          // What delta has been added to is there already.
          avx2::rms_norm_token(residual.data() + t * width, nullptr, weight.data(), 1e-5f, width,
                               expected.data() + t * width);
        }
        expect_same_bits(y, expected, "AVX2");
      }
    }
  }
}

}  // namespace
}  // namespace ragcache::kernels
