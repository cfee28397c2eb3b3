#pragma once

#include <cstdint>

// One token of silu_mul() for processors with AVX2 and FMA, and for those with AVX-512
// (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void silu_mul_token(const float* gate_up, int64_t width, float* y);
}
namespace avx512 {
void silu_mul_token(const float* gate_up, int64_t width, float* y);
}
}  // namespace ragcache::kernels
