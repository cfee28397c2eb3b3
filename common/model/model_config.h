#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json_object.h"
#include "common/weights/gguf.h"

namespace ragcache {

// How a file orders the rows of its query and key matrices: the rows that RoPE rotates together
// are i and i + head_dim/2 of a head, or neighbours 2i and 2i+1.
enum class RotaryRows { kHalves, kNeighbours };

// Hyperparameters of a decoder of the LLaMA family, as its files state them.
struct ModelConfig {
  std::string name;
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t width = 0;
  int64_t feed_forward_width = 0;
  int64_t vocabulary = 0;
  // Not more than the attention's sliding window: inside it every token sees all before it, so a
  // model with a window is exact up to there.
  int64_t context_tokens = 0;
  double rope_base = 0;
  float rms_epsilon = 0;
  // [head_dim / 2]: what each of RoPE's frequencies is divided by; empty: nothing.
  std::vector<float> rope_factors = {};
  RotaryRows rotary_rows = RotaryRows::kHalves;
  bool qkv_bias = false;

  int64_t qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
};

// GGUF's tensor of RoPE's frequency factors: read as part of the configuration.
inline constexpr std::string_view kRopeFactorsTensor = "rope_freqs.weight";

// Read a GGUF file's metadata and a safetensors folder's config.json. INVALID_ARGUMENT names file,
// field and bound; UNIMPLEMENTED names what this project does not know: another architecture,
// another RoPE scaling, experts.
absl::StatusOr<ModelConfig> read_gguf_config(const GgufFile& file);
absl::StatusOr<ModelConfig> read_json_config(const JsonObject& config);

}  // namespace ragcache
