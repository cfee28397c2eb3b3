#pragma once

#include <cstdint>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// y = gate · sigmoid(gate) · up.
void silu_mul(const float* gate_up,  // [n_tokens, 2, width]: gate, then up
              int64_t n_tokens, int64_t width,
              float* y,  // [n_tokens, width]
              ThreadPool& pool);

// The same in plain loops, one token.
void silu_mul_reference(const float* gate_up, int64_t width, float* y);

}  // namespace ragcache::kernels
