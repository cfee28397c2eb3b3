#include "kernels/linear/linear.h"

#include <vector>

#include "common/check.h"
#include "kernels/linear/linear_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {

void linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
            ThreadPool& pool) {
  RAG_CHECK(x != nullptr && y != nullptr && n_tokens >= 0 && weights.out() > 0);
  if (has_avx512()) {
    avx512::linear(x, n_tokens, weights, y, pool);
  } else if (has_avx2()) {
    avx2::linear(x, n_tokens, weights, y, pool);
  } else {
    linear_reference(x, n_tokens, weights, y);
  }
}

void linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y) {
  const int64_t in = weights.in();
  const int64_t out = weights.out();
  std::vector<float> row(in);
  for (int64_t o = 0; o < out; ++o) {
    weights.get_row(o, row);
    for (int64_t t = 0; t < n_tokens; ++t) {
      float sum = 0.0f;
      for (int64_t i = 0; i < in; ++i) sum += x[t * in + i] * row[i];
      y[t * out + o] = sum;
    }
  }
}

}  // namespace ragcache::kernels
