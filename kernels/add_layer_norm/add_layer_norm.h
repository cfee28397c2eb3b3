#pragma once

#include <cstdint>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

struct LayerNorm {
  const float* weight;  // [width]
  const float* bias;    // [width]
  float epsilon;        // added to the variance
};

// x = norm(x + branch + bias): the end of a branch of a network whose norms come after the sum.
// REQUIRES: x and branch do not overlap.
void add_layer_norm(float* x,             // [n_tokens, width]
                    const float* branch,  // [n_tokens, width]
                    const float* bias,    // [width], of the branch's last product
                    const LayerNorm& norm, int64_t n_tokens, int64_t width, ThreadPool& pool);

// The same in plain loops, one token.
void add_layer_norm_reference(float* x, const float* branch, const float* bias,
                              const LayerNorm& norm, int64_t width);

}  // namespace ragcache::kernels
