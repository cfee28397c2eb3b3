#define RAG_SIMD_AVX512
#include "kernels/silu_mul/silu_mul_simd.h"
