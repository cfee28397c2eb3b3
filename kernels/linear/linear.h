#pragma once

#include <cstdint>

#include "kernels/linear/packed_weights.h"
#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// y = x · weightsᵀ. Weights that are not fp32 are turned into fp32 on the way; activations stay
// fp32. The sum over `in` runs in the same order whatever n_tokens and the format are: a token's
// result does not depend on its batch, and it is the one that the dequantised weights would give.
// REQUIRES: x and y do not overlap.
void linear(const float* x,                // [n_tokens, weights.in]
            int64_t n_tokens,              //
            const PackedWeights& weights,  //
            float* y,                      // [n_tokens, weights.out]
            ThreadPool& pool);

// The same in plain loops.
void linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y);

}  // namespace ragcache::kernels
