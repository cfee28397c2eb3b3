#include "kernels/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/rms_norm/rms_norm_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 32;

}  // namespace

void rms_norm(float* residual, const float* delta, const float* weight, float epsilon,
              int64_t n_tokens, int64_t width, float* y, ThreadPool& pool) {
  RAG_CHECK(residual != nullptr && weight != nullptr && y != nullptr && y != residual);
  RAG_CHECK(n_tokens >= 0 && width > 0);
  const auto one_token = has_avx512() ? avx512::rms_norm_token
                         : has_avx2() ? avx2::rms_norm_token
                                      : rms_norm_reference;
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
