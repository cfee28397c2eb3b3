#include "kernels/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 32;

RAG_AVX2 void rms_norm_avx2(float* residual, const float* delta, const float* weight, float epsilon,
                            int64_t width, float* y) {
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < width; i += 8) {
    const __m256i mask = first_lanes(std::min<int64_t>(width - i, 8));
    __m256 value = _mm256_maskload_ps(residual + i, mask);
    if (delta != nullptr) {
      value = _mm256_add_ps(value, _mm256_maskload_ps(delta + i, mask));
      _mm256_maskstore_ps(residual + i, mask, value);
    }
    squares = _mm256_fmadd_ps(value, value, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(width);
  const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(mean + epsilon));
  for (int64_t i = 0; i < width; i += 8) {
    const __m256i mask = first_lanes(std::min<int64_t>(width - i, 8));
    const __m256 value = _mm256_mul_ps(_mm256_maskload_ps(residual + i, mask), scale);
    _mm256_maskstore_ps(y + i, mask, _mm256_mul_ps(value, _mm256_maskload_ps(weight + i, mask)));
  }
}

}  // namespace

void rms_norm(float* residual, const float* delta, const float* weight, float epsilon,
              int64_t n_tokens, int64_t width, float* y, ThreadPool& pool) {
  RAG_CHECK(residual != nullptr && weight != nullptr && y != nullptr && y != residual);
  RAG_CHECK(n_tokens >= 0 && width > 0);
  const auto one_token = has_avx2() ? rms_norm_avx2 : rms_norm_reference;
  pool.run((n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) {
      one_token(residual + t * width, delta == nullptr ? nullptr : delta + t * width, weight,
                epsilon, width, y + t * width);
    }
  });
}

void rms_norm_reference(float* residual, const float* delta, const float* weight, float epsilon,
                        int64_t width, float* y) {
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) {
    if (delta != nullptr) residual[i] += delta[i];
    squares += double{residual[i]} * residual[i];
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
  for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>(residual[i] * scale) * weight[i];
}

}  // namespace ragcache::kernels
