#include "kernels/int8_linear/int8_linear.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/half/byte_scale.h"
#include "kernels/int8_linear/int8_linear_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kBlock = PackedWeights::kQuantBlock;

}  // namespace

void int8_linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 Int8Rows& rounded, ThreadPool& pool) {
  RAG_CHECK(x != nullptr && y != nullptr && n_tokens >= 0 && weights.quantised());
  if (has_avx512()) {
    avx512::int8_linear(x, n_tokens, weights, y, rounded, pool);
  } else if (has_avx2()) {
    avx2::int8_linear(x, n_tokens, weights, y, rounded, pool);
  } else {
    int8_linear_reference(x, n_tokens, weights, y);
  }
}

void int8_linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights,
                           float* y) {
  const int64_t in = weights.in();
  const int64_t out = weights.out();
  std::vector<float> bytes(kBlock);  // whole numbers
  std::fill(y, y + n_tokens * out, 0.0f);
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t begin = 0; begin < in; begin += kBlock) {
      const float* from = x + t * in + begin;
      float largest = 0;
      for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(from[i]));
      const auto [scale, inverse] = byte_scale(largest);
      float total = 0;
      for (int64_t i = 0; i < kBlock; ++i) total += bytes[i] = std::nearbyint(from[i] * inverse);
      for (int64_t o = 0; o < out; ++o) {
        const PackedWeights::StoredBlock block = weights.get_block(o, begin / kBlock);
        float product = 0;
        for (int64_t i = 0; i < kBlock; ++i) product += bytes[i] * block.quants[i];
        float& sum = y[t * out + o];
        sum = std::fma(product * scale, block.scale, sum);
        if (weights.format() == WeightFormat::kQ4_1) {
          sum = std::fma(scale * total, block.minimum, sum);
        }
      }
    }
  }
}

}  // namespace ragcache::kernels
