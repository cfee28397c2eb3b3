#pragma once

#include <cstdint>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// residual += delta (where there is one); y = residual / sqrt(mean(residual²) + epsilon) · weight.
// REQUIRES: y overlaps neither residual nor delta.
void rms_norm(float* residual,      // [n_tokens, width]
              const float* delta,   // [n_tokens, width] or null
              const float* weight,  // [width]
              float epsilon, int64_t n_tokens, int64_t width,
              float* y,  // [n_tokens, width]
              ThreadPool& pool);

// The same in plain loops, one token.
void rms_norm_reference(float* residual, const float* delta, const float* weight, float epsilon,
                        int64_t width, float* y);

}  // namespace ragcache::kernels
