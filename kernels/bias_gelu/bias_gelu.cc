#include "kernels/bias_gelu/bias_gelu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 16;

// erfc(x) / 2 for x >= 0, to 1e-7: Abramowitz and Stegun, 7.1.26.
RAG_AVX2_INLINE __m256 half_erfc_lanes(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(x, _mm256_set1_ps(0.3275911f), one));
  __m256 p = _mm256_set1_ps(0.5f * 1.061405429f);
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * -1.453152027f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * 1.421413741f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * -0.284496736f));
  p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * 0.254829592f));
  const __m256 square = _mm256_mul_ps(x, x);
  return _mm256_mul_ps(_mm256_mul_ps(p, t), exp_lanes(_mm256_sub_ps(_mm256_setzero_ps(), square)));
}

// z · Φ(z) = max(z, 0) - |z| · Φ(-|z|)
RAG_AVX2_INLINE __m256 gelu_lanes(__m256 z) {
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), z);
  const __m256 root_half = _mm256_set1_ps(static_cast<float>(1 / std::numbers::sqrt2));
  const __m256 tail = half_erfc_lanes(_mm256_mul_ps(size, root_half));
  return _mm256_fnmadd_ps(size, tail, _mm256_max_ps(z, _mm256_setzero_ps()));
}

RAG_AVX2 void bias_gelu_avx2(float* x, const float* bias, int64_t width) {
  int64_t i = 0;
  for (; i + 8 <= width; i += 8) {
    const __m256 z = _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(bias + i));
    _mm256_storeu_ps(x + i, gelu_lanes(z));
  }
  // Masked stores alone cost some processors as much as all the arithmetic.
  if (i == width) return;
  const __m256i mask = first_lanes(width - i);
  const __m256 z =
      _mm256_add_ps(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(bias + i, mask));
  _mm256_maskstore_ps(x + i, mask, gelu_lanes(z));
}

}  // namespace

void bias_gelu(float* x, const float* bias, int64_t n_tokens, int64_t width, ThreadPool& pool) {
  RAG_CHECK(x != nullptr && bias != nullptr && n_tokens >= 0 && width > 0);
  const auto one_token = has_avx2() ? bias_gelu_avx2 : bias_gelu_reference;
  pool.run((n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) one_token(x + t * width, bias, width);
  });
}

void bias_gelu_reference(float* x, const float* bias, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const double z = double{x[i]} + bias[i];
    x[i] = static_cast<float>(0.5 * z * std::erfc(-z / std::numbers::sqrt2));
  }
}

}  // namespace ragcache::kernels
