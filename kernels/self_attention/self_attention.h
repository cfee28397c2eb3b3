#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// Attention of an encoder: every token of a sequence sees all of its sequence. Sequences lie one
// after another without padding.
struct SelfAttention {
  const float* query_key_value;     // [n_tokens, 3, n_heads, head_dim]
  const float* bias;                // [3, n_heads, head_dim], still to be added
  std::span<const int64_t> begins;  // of the sequences, and the end of the last
  int64_t n_heads;
  int64_t head_dim;
  float* y;  // [n_tokens, n_heads, head_dim]
};

// Kept from call to call, so that memory is touched once. One call at a time.
struct SelfAttentionScratch {
  std::vector<float> floats;
};

// A token's result depends on its own sequence alone, to the bit.
void self_attention(const SelfAttention& args, SelfAttentionScratch& scratch, ThreadPool& pool);

// The same in plain loops.
void self_attention_reference(const SelfAttention& args);

}  // namespace ragcache::kernels
