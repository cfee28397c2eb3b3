#include "kernels/linear/linear.h"

#include <cstring>

#include "kernels/linear/linear_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"
#include "kernels/testing/stored_matrix.h"

namespace ragcache::kernels {
namespace {

TEST(Linear, AgreesWithTheReferenceOverFormatsShapesAndTails) {
  std::mt19937 random(5);
  ThreadPool pool(3);
  for (WeightFormat format : kFormats) {
    for (int64_t in : {1, 9, 64, 288, 289, 704}) {
      if (is_quantised(format) && in % 32 != 0) continue;
      for (int64_t out : {1, 8, 15, 16, 17, 200, 431}) {
        const StoredMatrix matrix(format, out, in, random);
        const PackedWeights weights = matrix.packed(format);
        for (int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13, 97, 200}) {
          SCOPED_TRACE(testing::Message() << name_of(format) << ", " << n_tokens << " tokens, "
                                          << in << " to " << out);
          Guarded x(n_tokens * in), y(n_tokens * out), expected(n_tokens * out);
          fill_normal(x, random);
          for (int64_t t = 0; t < n_tokens; ++t) {
            for (int64_t o = 0; o < out; ++o) {
              double sum = 0;
              for (int64_t i = 0; i < in; ++i) {
                sum += double{x[t * in + i]} * matrix.values[o][i];
              }
              expected[t * out + o] = static_cast<float>(sum);
            }
          }
          // Rounding grows with the terms, of which the sum may be far smaller.
          const float tolerance = format == WeightFormat::kQ8_0 ? 5e-3f : 5e-4f;
          linear(x.data(), n_tokens, weights, y.data(), pool);
          expect_close(y, expected, tolerance);
          y.expect_intact("y");
          if (has_avx512()) {
            Guarded with_avx2(n_tokens * out);
            avx2::linear(x.data(), n_tokens, weights, with_avx2.data(), pool);
            expect_same_bits(y, with_avx2, "AVX2");
          }
          if (n_tokens > 7) continue;
          linear_reference(x.data(), n_tokens, weights, y.data());
          expect_close(y, expected, tolerance);
        }
      }
    }
  }
}

TEST(Linear, GivesATokenTheSameBitsInEveryBatchAndForDequantizedWeights) {
  std::mt19937 random(6);
  ThreadPool pool(2);
  constexpr int64_t kIn = 704, kOut = 431, kTokens = 203;
  Guarded x(kTokens * kIn);
  fill_normal(x, random);
  for (WeightFormat format : kFormats) {
    SCOPED_TRACE(name_of(format));
    const StoredMatrix matrix(format, kOut, kIn, random);
    const PackedWeights weights = matrix.packed(format), dequantized = matrix.dequantized();
    Guarded all(kTokens * kOut), some(kTokens * kOut);
    linear(x.data(), kTokens, dequantized, all.data(), pool);
    for (int64_t n_tokens : {1, 2, 3, 4, 5, 8, 13, 100, 203}) {
      for (int64_t t = 0; t + n_tokens <= kTokens; t += n_tokens) {
        linear(x.data() + t * kIn, n_tokens, weights, some.data(), pool);
        ASSERT_EQ(std::memcmp(some.data(), all.data() + t * kOut, n_tokens * kOut * sizeof(float)),
                  0)
            << n_tokens << " tokens from " << t;
      }
    }
  }
}

TEST(PackedWeights, GivesBackTheRowsItWasGiven) {
  std::mt19937 random(7);
  for (WeightFormat format : kFormats) {
    SCOPED_TRACE(name_of(format));
    const StoredMatrix matrix(format, 35, 64, random);
    PackedWeights weights(35, 64, format);
    for (int64_t row = 34; row >= 0; --row) weights.set_row(row, matrix.stored[row]);
    std::vector<float> read(64);
    for (int64_t row = 0; row < 35; ++row) {
      weights.get_row(row, read);
      EXPECT_EQ(read, matrix.values[row]) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace ragcache::kernels
