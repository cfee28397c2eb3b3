#define RAG_SIMD_AVX512
#include "kernels/linear/linear_simd.h"
