#include "kernels/int8_linear/int8_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/int8_linear/int8_linear_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"
#include "kernels/testing/stored_matrix.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kBlock = PackedWeights::kQuantBlock;

// Of what lies behind the bound: products' own rounding.
constexpr float kRelative = 1e-4f;

TEST(Int8Linear, HasTheReferencesBitsInEveryVersionOverFormatsShapesAndTails) {
  std::mt19937 random(11);
  ThreadPool pool(3);
  Int8Rows rows;
  for (WeightFormat format : kFormats) {
    if (!is_quantised(format)) continue;
    for (int64_t in : {32, 64, 288, 704}) {
      for (int64_t out : {1, 15, 16, 17, 200, 431}) {
        const PackedWeights weights = StoredMatrix(format, out, in, random).packed(format);
        for (int64_t n_tokens : {1, 2, 3, 4, 5, 15, 16, 17, 33, 200}) {
          SCOPED_TRACE(testing::Message() << name_of(format) << ", " << n_tokens << " tokens, "
                                          << in << " to " << out);
          Guarded x(n_tokens * in), y(n_tokens * out), expected(n_tokens * out);
          fill_normal(x, random);
          int8_linear_reference(x.data(), n_tokens, weights, expected.data());
          int8_linear(x.data(), n_tokens, weights, y.data(), rows, pool);
          expect_same_bits(y, expected, "the reference");
          y.expect_intact("y");
          if (!has_avx512()) continue;
          avx2::int8_linear(x.data(), n_tokens, weights, y.data(), rows, pool);
          expect_same_bits(y, expected, "the reference, AVX2");
        }
      }
    }
  }
}

// Each activation is off by half a step of its block at most.
TEST(Int8Linear, IsAsCloseToTheExactProductAsItsStepsAllow) {
  std::mt19937 random(12);
  ThreadPool pool(2);
  Int8Rows rows;
  constexpr int64_t kIn = 288, kOut = 50, kTokens = 20;
  for (WeightFormat format : kFormats) {
    if (!is_quantised(format)) continue;
    SCOPED_TRACE(name_of(format));
    const StoredMatrix matrix(format, kOut, kIn, random);
    Guarded x(kTokens * kIn), y(kTokens * kOut);
    fill_normal(x, random);
    int8_linear(x.data(), kTokens, matrix.packed(format), y.data(), rows, pool);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t o = 0; o < kOut; ++o) {
        double exact = 0, bound = 0, size = 0;
        for (int64_t begin = 0; begin < kIn; begin += kBlock) {
          const float* block = x.data() + t * kIn + begin;
          double largest = 0;
          for (int64_t i = 0; i < kBlock; ++i) {
            largest = std::max(largest, std::abs(double{block[i]}));
          }
          for (int64_t i = 0; i < kBlock; ++i) {
            const double weight = matrix.values[o][begin + i];
            exact += block[i] * weight;
            size += std::abs(block[i] * weight);
            bound += largest / 127 / 2 * std::abs(weight);
          }
        }
        ASSERT_LE(std::abs(y[t * kOut + o] - exact), bound + kRelative * size);
      }
    }
  }
}

TEST(Int8Linear, KeepsWhatBytesHoldExactly) {
  ThreadPool pool(1);
  Int8Rows rows;
  // Extremes of activations and of weights: nothing overflows or saturates on the way.
  for (WeightFormat format : kFormats) {
    if (!is_quantised(format)) continue;
    SCOPED_TRACE(name_of(format));
    for (const uint8_t weight : {0x00, 0x7F, 0x80, 0xFF}) {
      constexpr int64_t kIn = 64, kOut = 16;
      PackedWeights weights(kOut, kIn, format);
      std::vector<uint8_t> row(weights.panel_bytes() / PackedWeights::kPanel, weight);
      const size_t block_bytes = row.size() / (kIn / kBlock);
      const int64_t halves = format == WeightFormat::kQ4_1 ? 2 : 1;
      for (size_t block = 0; block < row.size(); block += block_bytes) {
        for (int64_t h = 0; h < halves; ++h) {
          row[block + 2 * h] = 0x00;
          row[block + 2 * h + 1] = 0x3C;  // 1.0 as a half
        }
      }
      for (int64_t o = 0; o < kOut; ++o) weights.set_row(o, row);
      std::vector<float> values(kIn);
      weights.get_row(0, values);
      for (const float activation : {-127.0f, 127.0f, 0.0f}) {
        const std::vector<float> x(kIn, activation);
        std::vector<float> y(kOut);
        int8_linear(x.data(), 1, weights, y.data(), rows, pool);
        float expected = 0;
        for (const float value : values) expected += activation * value;
        for (int64_t o = 0; o < kOut; ++o) ASSERT_EQ(y[o], expected);
      }
    }
  }
}

TEST(Int8Linear, GivesATokenTheSameBitsInEveryBatch) {
  std::mt19937 random(13);
  ThreadPool pool(2);
  Int8Rows rows;
  constexpr int64_t kIn = 704, kOut = 431, kTokens = 203;
  Guarded x(kTokens * kIn), all(kTokens * kOut), some(kTokens * kOut);
  fill_normal(x, random);
  for (WeightFormat format : kFormats) {
    if (!is_quantised(format)) continue;
    SCOPED_TRACE(name_of(format));
    const PackedWeights weights = StoredMatrix(format, kOut, kIn, random).packed(format);
    int8_linear(x.data(), kTokens, weights, all.data(), rows, pool);
    for (int64_t n_tokens : {1, 2, 3, 7, 16, 17, 100}) {
      for (int64_t t = 0; t + n_tokens <= kTokens; t += n_tokens) {
        int8_linear(x.data() + t * kIn, n_tokens, weights, some.data(), rows, pool);
        ASSERT_EQ(std::memcmp(some.data(), all.data() + t * kOut, n_tokens * kOut * sizeof(float)),
                  0)
            << n_tokens << " tokens from " << t;
      }
    }
  }
}

}  // namespace
}  // namespace ragcache::kernels
