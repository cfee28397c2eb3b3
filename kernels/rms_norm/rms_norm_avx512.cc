#define RAG_SIMD_AVX512
#include "kernels/rms_norm/rms_norm_simd.h"
