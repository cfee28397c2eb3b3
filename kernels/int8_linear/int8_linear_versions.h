#pragma once

#include "kernels/int8_linear/int8_linear.h"

// int8_linear() for processors with AVX2 and FMA, and for those with AVX-512 (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void int8_linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 Int8Rows& rounded, ThreadPool& pool);
}
namespace avx512 {
void int8_linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 Int8Rows& rounded, ThreadPool& pool);
}
}  // namespace ragcache::kernels
