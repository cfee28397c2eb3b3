#include "services/worker/model/llama.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/silu_mul/silu_mul.h"

namespace ragcache::worker {
namespace {

// Moves the rows `rows` (ascending) of [n, width] to the front.
void keep_rows(std::vector<float>& values, std::span<const int32_t> rows, int64_t width) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<size_t>(rows[i]) == i) continue;
    std::copy_n(values.begin() + rows[i] * width, width, values.begin() + i * width);
  }
}

// Adds `bias` to each of the first n rows.
void add_to_rows(std::vector<float>& values, int64_t n, std::span<const float> bias,
                 kernels::ThreadPool& pool) {
  pool.run(n, [&](int64_t row, int) {
    float* const to = values.data() + row * bias.size();
    for (size_t i = 0; i < bias.size(); ++i) to[i] += bias[i];
  });
}

}  // namespace

void ForwardBatch::clear() {
  tokens.clear();
  positions.clear();
  slots.clear();
  query_start.assign(1, 0);
  context_start.assign(1, 0);
  context_slots.clear();
  wants_logits.clear();
}

void ForwardBatch::add(std::span<const uint32_t> new_tokens, std::span<const int32_t> context,
                       bool logits) {
  RAG_CHECK(!new_tokens.empty() && context.size() >= new_tokens.size());
  const size_t first = context.size() - new_tokens.size();
  tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
  for (size_t i = first; i < context.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  slots.insert(slots.end(), context.begin() + first, context.end());
  context_slots.insert(context_slots.end(), context.begin(), context.end());
  query_start.push_back(static_cast<int32_t>(tokens.size()));
  context_start.push_back(static_cast<int32_t>(context_slots.size()));
  wants_logits.push_back(logits);
}

LlamaModel::LlamaModel(LlamaWeights weights, int64_t max_tokens, kernels::ThreadPool& pool,
                       kernels::KvType kv_type, Activations activations)
    : weights_(std::move(weights)),
      max_tokens_(max_tokens),
      pool_(pool),
      kv_type_(kv_type),
      activations_(activations),
      rope_(config().context_tokens, config().head_dim, config().rope_base, config().rope_factors),
      residual_(max_tokens * config().width),
      delta_(max_tokens * config().width),
      normed_(max_tokens * config().width),
      wide_(max_tokens * std::max(config().qkv_width(), 2 * config().feed_forward_width)),
      inner_(max_tokens *
             std::max(config().n_heads * config().head_dim, config().feed_forward_width)) {
  RAG_CHECK(max_tokens > 0);
}

kernels::KvLayout LlamaModel::kv_layout() const {
  return {config().n_layers, config().n_kv_heads, config().head_dim, kv_type_};
}

Digest LlamaModel::kv_fingerprint() const {
  if (activations_ == Activations::kF32) return fingerprint();
  return Sha256().update(fingerprint()).update("int8 activations").finish();
}

std::span<const float> LlamaModel::forward(const ForwardBatch& batch, void* kv,
                                           const BeforeAttention& before_attention) {
  const kernels::ScopedFlushDenormals flush;
  const ModelConfig& c = config();
  int64_t n_tokens = static_cast<int64_t>(batch.tokens.size());
  RAG_CHECK(n_tokens > 0 && n_tokens <= max_tokens_);

  // The last layer has an output only where logits are wanted.
  std::vector<int32_t> last_rows, last_query_start{0}, last_context_start{0}, last_slots;
  for (size_t s = 0; s < batch.wants_logits.size(); ++s) {
    if (!batch.wants_logits[s]) continue;
    last_rows.push_back(batch.query_start[s + 1] - 1);
    last_query_start.push_back(static_cast<int32_t>(last_rows.size()));
    last_slots.insert(last_slots.end(), batch.context_slots.begin() + batch.context_start[s],
                      batch.context_slots.begin() + batch.context_start[s + 1]);
    last_context_start.push_back(static_cast<int32_t>(last_slots.size()));
  }
  const kernels::AttentionPlan plan({batch.query_start, batch.context_start, batch.context_slots},
                                    c.n_heads, kv_layout());
  const kernels::AttentionPlan last_plan({last_query_start, last_context_start, last_slots},
                                         c.n_heads, kv_layout());

  pool_.run(n_tokens, [&](int64_t t, int) {
    RAG_CHECK(batch.tokens[t] < static_cast<uint64_t>(c.vocabulary));
    weights_.embedding.get_row(batch.tokens[t], std::span(residual_).subspan(t * c.width, c.width));
  });
  const float* delta = nullptr;
  for (int64_t l = 0; l < c.n_layers; ++l) {
    const LlamaWeights::Layer& layer = weights_.layers[l];
    const bool last = l + 1 == c.n_layers;
    kernels::rms_norm(residual_.data(), delta, layer.attention_norm.data(), c.rms_epsilon, n_tokens,
                      c.width, normed_.data(), pool_);
    multiply(normed_, n_tokens, layer.qkv, wide_);
    if (!layer.qkv_bias.empty()) add_to_rows(wide_, n_tokens, layer.qkv_bias, pool_);
    kernels::rope_kv_append({.qkv = wide_.data(),
                             .n_tokens = n_tokens,
                             .n_heads = c.n_heads,
                             .positions = batch.positions.data(),
                             .slots = batch.slots.data(),
                             .kv = kv,
                             .layout = kv_layout(),
                             .layer = l},
                            rope_, pool_);
    if (last) {
      if (last_rows.empty()) return {};
      keep_rows(wide_, last_rows, c.qkv_width());
      keep_rows(residual_, last_rows, c.width);
      n_tokens = static_cast<int64_t>(last_rows.size());
    }
    if (before_attention) before_attention(l);
    kernels::paged_prefix_attention({.queries = wide_.data(),
                                     .query_stride = c.qkv_width(),
                                     .kv = kv,
                                     .layer = l,
                                     .y = inner_.data()},
                                    last ? last_plan : plan, attention_scratch_, pool_);
    multiply(inner_, n_tokens, layer.attention_out, delta_);
    kernels::rms_norm(residual_.data(), delta_.data(), layer.feed_forward_norm.data(),
                      c.rms_epsilon, n_tokens, c.width, normed_.data(), pool_);
    feed_forward(layer, n_tokens);
    delta = delta_.data();
  }
  kernels::rms_norm(residual_.data(), delta, weights_.output_norm.data(), c.rms_epsilon, n_tokens,
                    c.width, normed_.data(), pool_);
  const kernels::PackedWeights& head = weights_.head.out() > 0 ? weights_.head : weights_.embedding;
  logits_.resize(n_tokens * c.vocabulary);
  multiply(normed_, n_tokens, head, logits_);
  return logits_;
}

void LlamaModel::feed_forward(const LlamaWeights::Layer& layer, int64_t n_tokens) {
  const int64_t width = config().feed_forward_width;
  multiply(normed_, n_tokens, layer.gate_up, wide_);
  kernels::silu_mul(wide_.data(), n_tokens, width, inner_.data(), pool_);
  multiply(inner_, n_tokens, layer.down, delta_);
}

void LlamaModel::multiply(const std::vector<float>& x, int64_t n_tokens,
                          const kernels::PackedWeights& weights, std::vector<float>& y) {
  if (activations_ == Activations::kInt8 && weights.quantised()) {
    kernels::int8_linear(x.data(), n_tokens, weights, y.data(), rounded_, pool_);
  } else {
    kernels::linear(x.data(), n_tokens, weights, y.data(), pool_);
  }
}

}  // namespace ragcache::worker
