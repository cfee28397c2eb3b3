#include "kernels/silu_mul/silu_mul.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/silu_mul/silu_mul_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 4;

}  // namespace

void silu_mul(const float* gate_up, int64_t n_tokens, int64_t width, float* y, ThreadPool& pool) {
  RAG_CHECK(gate_up != nullptr && y != nullptr && n_tokens >= 0 && width > 0);
  const auto one_token = has_avx512() ? avx512::silu_mul_token
                         : has_avx2() ? avx2::silu_mul_token
                                      : silu_mul_reference;
  pool.run((n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) {
      one_token(gate_up + t * 2 * width, width, y + t * width);
    }
  });
}

void silu_mul_reference(const float* gate_up, int64_t width, float* y) {
  for (int64_t i = 0; i < width; ++i) {
    const double gate = gate_up[i];
    y[i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * gate_up[width + i]);
  }
}

}  // namespace ragcache::kernels
