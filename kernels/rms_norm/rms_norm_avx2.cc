#include "kernels/rms_norm/rms_norm_simd.h"
