#pragma once

#include <cstdint>
#include <vector>

#include "kernels/linear/packed_weights.h"
#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// Activations as bytes, as llama.cpp's Q8_0 has them: blocks of 32 inputs with a scale each
// (kernels/half/byte_scale.h).
struct Int8Rows {
  struct Block {
    float scale;
    float sum;      // of the block's values: scale · total
    int32_t total;  // of the block's bytes
  };

  std::vector<int8_t> bytes;  // [n_tokens, in]
  std::vector<Block> blocks;  // [n_tokens, in / 32]
};

// y ≈ x · weightsᵀ: x is rounded to bytes, so that four products take one instruction; sums of a
// block are whole numbers, those of blocks fp32 in the order of the inputs. A token's result does
// not depend on its batch. `rounded` is scratch. REQUIRES: weights of a quantised format; x and y
// do not overlap.
void int8_linear(const float* x,                // [n_tokens, weights.in]
                 int64_t n_tokens,              //
                 const PackedWeights& weights,  //
                 float* y,                      // [n_tokens, weights.out]
                 Int8Rows& rounded, ThreadPool& pool);

// The same in plain loops, to the same bits.
void int8_linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights,
                           float* y);

}  // namespace ragcache::kernels
