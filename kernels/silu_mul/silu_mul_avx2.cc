#include "kernels/silu_mul/silu_mul_simd.h"
