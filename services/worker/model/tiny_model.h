#pragma once

#include "services/worker/model/llama_weights.h"

namespace ragcache::worker {

// A small model with random weights, for tests: 3 layers, 6 heads over 2 KV heads, 61 tokens,
// context of 512. Its logits are far apart, so that greedy answers vary and are stable.
LlamaWeights tiny_weights(uint32_t seed);

}  // namespace ragcache::worker
