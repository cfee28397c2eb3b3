#pragma once

#include <cstdint>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// x = gelu(x + bias), with gelu(z) = z · Φ(z) by the error function, in place.
void bias_gelu(float* x,           // [n_tokens, width]
               const float* bias,  // [width]
               int64_t n_tokens, int64_t width, ThreadPool& pool);

// The same in plain loops, one token.
void bias_gelu_reference(float* x, const float* bias, int64_t width);

}  // namespace ragcache::kernels
