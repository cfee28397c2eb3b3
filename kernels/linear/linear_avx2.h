#pragma once

#include "kernels/linear/linear.h"

namespace ragcache::kernels {

// linear() for processors with AVX2 and FMA.
void linear_avx2(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 ThreadPool& pool);

}  // namespace ragcache::kernels
