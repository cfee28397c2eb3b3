#pragma once

#include "kernels/linear/linear.h"

// linear() for processors with AVX2 and FMA, and for those with AVX-512 (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
            ThreadPool& pool);
}
namespace avx512 {
void linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
            ThreadPool& pool);
}
}  // namespace ragcache::kernels
