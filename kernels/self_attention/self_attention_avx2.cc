#include "kernels/self_attention/self_attention_simd.h"
