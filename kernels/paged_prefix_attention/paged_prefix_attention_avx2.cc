#include "kernels/paged_prefix_attention/paged_prefix_attention_simd.h"
