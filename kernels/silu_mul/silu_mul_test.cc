#include "kernels/silu_mul/silu_mul.h"

#include "kernels/silu_mul/silu_mul_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(SiluMul, AgreesWithTheReferenceOverWidthsAndExtremeGates) {
  std::mt19937 random(2);
  ThreadPool pool(3);
  for (int64_t width : {1, 7, 8, 33, 1536}) {
    for (int64_t n_tokens : {1, 2, 17, 50}) {
      for (float deviation : {0.1f, 3.0f, 60.0f}) {
        SCOPED_TRACE(testing::Message() << "width " << width << ", tokens " << n_tokens
                                        << ", deviation " << deviation);
        Guarded gate_up(n_tokens * 2 * width), y(n_tokens * width), expected(n_tokens * width);
        fill_normal(gate_up, random, deviation);
        for (int64_t t = 0; t < n_tokens; ++t) {
          silu_mul_reference(gate_up.data() + t * 2 * width, width, expected.data() + t * width);
        }
        silu_mul(gate_up.data(), n_tokens, width, y.data(), pool);
        expect_close(y, expected, 2e-6f);
        y.expect_intact("y");
        if (!has_avx512()) continue;
        for (int64_t t = 0; t < n_tokens; ++t) {
          avx2::silu_mul_token(gate_up.data() + t * 2 * width, width, expected.data() + t * width);
        }
        expect_same_bits(y, expected, "AVX2");
      }
    }
  }
}

}  // namespace
}  // namespace ragcache::kernels
