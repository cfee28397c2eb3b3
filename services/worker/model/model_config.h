#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/gguf.h"

namespace ragcache::worker {

// Hyperparameters of a decoder of the LLaMA family, as its file states them.
struct ModelConfig {
  std::string name;
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t width = 0;
  int64_t feed_forward_width = 0;
  int64_t vocabulary = 0;
  int64_t context_tokens = 0;
  double rope_base = 0;
  float rms_epsilon = 0;

  int64_t qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
};

// Reads a GGUF file's metadata (architecture "llama"). INVALID_ARGUMENT names the key and its
// bound; UNIMPLEMENTED names what this build does not know (another architecture, RoPE scaling).
absl::StatusOr<ModelConfig> read_model_config(const GgufFile& file);

}  // namespace ragcache::worker
