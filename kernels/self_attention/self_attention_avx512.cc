#define RAG_SIMD_AVX512
#include "kernels/self_attention/self_attention_simd.h"
