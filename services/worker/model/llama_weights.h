#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "common/model/model_files.h"
#include "kernels/linear/linear.h"
#include "kernels/parallel/thread_pool.h"

namespace ragcache::worker {

// A model's weights in the order the kernels read them; matrices in the format of their file where
// the kernels know it, else in fp32. What reads one input is one matrix: queries, keys and values;
// gate and up. Query and key rows are in the half-split order of RoPE.
struct LlamaWeights {
  struct Layer {
    std::vector<float> attention_norm;     // [width]
    kernels::PackedWeights qkv;            // [qkv_width, width]
    std::vector<float> qkv_bias;           // [qkv_width]; empty: none
    kernels::PackedWeights attention_out;  // [width, n_heads · head_dim]
    std::vector<float> feed_forward_norm;  // [width]
    kernels::PackedWeights gate_up;        // [2 · feed_forward_width, width]
    kernels::PackedWeights down;           // [width, feed_forward_width]
  };

  ModelConfig config;
  Digest fingerprint{};              // of the model's files
  kernels::PackedWeights embedding;  // [vocabulary, width]
  kernels::PackedWeights head;       // the same shape; empty: the embedding is the head
  std::vector<float> output_norm;    // [width]
  std::vector<Layer> layers;
};

// Every tensor's shape and size is checked against the hyperparameters before any memory is
// taken. INVALID_ARGUMENT names the tensor and the shape it must have; UNIMPLEMENTED names a
// tensor that this architecture does not know.
absl::StatusOr<LlamaWeights> load_llama_weights(const ModelFiles& files, kernels::ThreadPool& pool);

}  // namespace ragcache::worker
