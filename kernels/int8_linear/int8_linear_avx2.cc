#include "kernels/int8_linear/int8_linear_simd.h"
