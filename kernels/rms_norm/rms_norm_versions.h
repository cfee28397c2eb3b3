#pragma once

#include <cstdint>

// One token of rms_norm() for processors with AVX2 and FMA, and for those with AVX-512
// (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void rms_norm_token(float* residual, const float* delta, const float* weight, float epsilon,
                    int64_t width, float* y);
}
namespace avx512 {
void rms_norm_token(float* residual, const float* delta, const float* weight, float epsilon,
                    int64_t width, float* y);
}
}  // namespace ragcache::kernels
