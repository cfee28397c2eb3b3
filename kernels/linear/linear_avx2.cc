#include "kernels/linear/linear_simd.h"
