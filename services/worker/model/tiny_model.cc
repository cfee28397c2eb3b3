#include "services/worker/model/tiny_model.h"

#include <cmath>
#include <random>

namespace ragcache::worker {
namespace {

kernels::PackedWeights random_matrix(int64_t out, int64_t in, float gain, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, gain / std::sqrt(static_cast<float>(in)));
  kernels::PackedWeights weights(out, in);
  std::vector<float> row(in);
  for (int64_t o = 0; o < out; ++o) {
    for (float& value : row) value = normal(random);
    weights.set_row(o, row);
  }
  return weights;
}

std::vector<float> random_norm(int64_t width, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  std::vector<float> weight(width);
  for (float& value : weight) value = uniform(random);
  return weight;
}

}  // namespace

LlamaWeights tiny_weights(uint32_t seed) {
  std::mt19937 random(seed);
  LlamaWeights weights;
  ModelConfig& config = weights.config;
  config = {.name = "tiny",
            .n_layers = 3,
            .n_heads = 6,
            .n_kv_heads = 2,
            .head_dim = 16,
            .width = 48,
            .feed_forward_width = 80,
            .vocabulary = 61,
            .context_tokens = 512,
            .rope_base = 10000.0,
            .rms_epsilon = 1e-5f};
  weights.fingerprint = sha256("tiny");
  weights.embedding = random_matrix(config.vocabulary, config.width, 7.0f, random);
  weights.head = random_matrix(config.vocabulary, config.width, 3.0f, random);
  weights.output_norm = random_norm(config.width, random);
  const int64_t attention_width = config.n_heads * config.head_dim;
  for (int64_t l = 0; l < config.n_layers; ++l) {
    LlamaWeights::Layer& layer = weights.layers.emplace_back();
    layer.attention_norm = random_norm(config.width, random);
    layer.qkv = random_matrix(config.qkv_width(), config.width, 1.5f, random);
    layer.attention_out = random_matrix(config.width, attention_width, 2.0f, random);
    layer.feed_forward_norm = random_norm(config.width, random);
    layer.gate_up = random_matrix(2 * config.feed_forward_width, config.width, 1.0f, random);
    layer.down = random_matrix(config.width, config.feed_forward_width, 2.0f, random);
  }
  return weights;
}

}  // namespace ragcache::worker
