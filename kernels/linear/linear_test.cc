#include "kernels/linear/linear.h"

#include <cstring>

#include "kernels/half/half.h"
#include "kernels/linear/linear_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kQ8_0,
                                     WeightFormat::kQ4_0, WeightFormat::kQ4_1};
const char* const kFormatNames[] = {"F32", "F16", "Q8_0", "Q4_0", "Q4_1"};

// A matrix as a file stores it, and what its rows stand for by the definition of the format.
struct StoredMatrix {
  std::vector<std::vector<uint8_t>> stored;
  std::vector<std::vector<float>> values;

  StoredMatrix(WeightFormat format, int64_t out, int64_t in, std::mt19937& random) {
    for (int64_t row = 0; row < out; ++row) {
      stored.emplace_back();
      values.emplace_back();
      while (static_cast<int64_t>(values.back().size()) < in) add_block(format, random);
    }
  }

  PackedWeights packed(WeightFormat format) const {
    PackedWeights weights(stored.size(), values[0].size(), format);
    for (size_t row = 0; row < stored.size(); ++row) weights.set_row(row, stored[row]);
    return weights;
  }

  PackedWeights dequantized() const {
    PackedWeights weights(values.size(), values[0].size());
    for (size_t row = 0; row < values.size(); ++row) weights.set_row(row, values[row]);
    return weights;
  }

 private:
  void add_half(float value) {
    const uint16_t half = to_half(value);
    stored.back().push_back(half & 255);
    stored.back().push_back(half >> 8);
  }

  void add_block(WeightFormat format, std::mt19937& random) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<float>& row = values.back();
    if (format == WeightFormat::kF32) {
      row.push_back(normal(random));
      uint8_t bytes[4];
      std::memcpy(bytes, &row.back(), 4);
      stored.back().insert(stored.back().end(), bytes, bytes + 4);
      return;
    }
    const float scale = from_half(to_half(normal(random)));
    const float minimum = from_half(to_half(normal(random)));
    add_half(scale);
    if (format == WeightFormat::kF16) {
      row.push_back(scale);
      return;
    }
    if (format == WeightFormat::kQ8_0) {
      for (int i = 0; i < 32; ++i) {
        stored.back().push_back(random() % 256);
        row.push_back(scale * static_cast<int8_t>(stored.back().back()));
      }
      return;
    }
    const bool centred = format == WeightFormat::kQ4_0;
    if (!centred) add_half(minimum);
    uint32_t quants[32];
    for (uint32_t& quant : quants) {
      quant = random() % 16;
      row.push_back(centred ? scale * (static_cast<float>(quant) - 8.0f)
                            : scale * static_cast<float>(quant) + minimum);
    }
    for (int i = 0; i < 16; ++i) stored.back().push_back(quants[i] | quants[16 + i] << 4);
  }
};

bool quantised(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16;
}

TEST(Linear, AgreesWithTheReferenceOverFormatsShapesAndTails) {
  std::mt19937 random(5);
  ThreadPool pool(3);
  for (WeightFormat format : kFormats) {
    for (int64_t in : {1, 9, 64, 288, 289, 704}) {
      if (quantised(format) && in % 32 != 0) continue;
      for (int64_t out : {1, 8, 15, 16, 17, 200, 431}) {
        const StoredMatrix matrix(format, out, in, random);
        const PackedWeights weights = matrix.packed(format);
        for (int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13, 97, 200}) {
          SCOPED_TRACE(testing::Message() << kFormatNames[static_cast<int>(format)] << ", "
                                          << n_tokens << " tokens, " << in << " to " << out);
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
    SCOPED_TRACE(kFormatNames[static_cast<int>(format)]);
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
    SCOPED_TRACE(kFormatNames[static_cast<int>(format)]);
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
