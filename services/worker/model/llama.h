#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/int8_linear/int8_linear.h"
#include "kernels/kv_layout/kv_layout.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention.h"
#include "kernels/parallel/thread_pool.h"
#include "kernels/rope_kv_append/rope_kv_append.h"
#include "services/worker/model/llama_weights.h"

namespace ragcache::worker {

// New tokens of any number of sequences, one after another.
struct ForwardBatch {
  std::vector<uint32_t> tokens;           // [n_tokens]
  std::vector<int32_t> positions;         // [n_tokens]
  std::vector<int32_t> slots;             // [n_tokens]: where their keys and values go
  std::vector<int32_t> query_start{0};    // [n_sequences + 1], into tokens
  std::vector<int32_t> context_start{0};  // [n_sequences + 1], into context_slots
  std::vector<int32_t> context_slots;     // oldest first, the new tokens' own last
  std::vector<bool> wants_logits;         // [n_sequences]

  void clear();
  // Adds a sequence: its new tokens continue a context that has `context` slots in all.
  void add(std::span<const uint32_t> new_tokens, std::span<const int32_t> context, bool logits);
};

// What matrices that are kept quantised are multiplied with. Bytes are several times as fast and
// less exact (kernels/int8_linear).
enum class Activations { kF32, kInt8 };

// Runs a model of the LLaMA family. Single-threaded to its owner: one call at
// a time; it computes on its own pool of threads.
class LlamaModel {
 public:
  // Buffers of forward() are sized for `max_tokens` in a batch.
  LlamaModel(LlamaWeights weights, int64_t max_tokens, kernels::ThreadPool& pool,
             kernels::KvType kv_type = kernels::KvType::kF32,
             Activations activations = Activations::kF32);

  const ModelConfig& config() const { return weights_.config; }
  const Digest& fingerprint() const { return weights_.fingerprint; }
  // Of what keys and values depend on beside tokens: other activations give others.
  Digest kv_fingerprint() const;
  int64_t max_tokens() const { return max_tokens_; }
  kernels::KvLayout kv_layout() const;

  // Writes the new tokens' keys and values into `kv`, a pool of kv_layout(), and returns the logits
  // after the last token of each sequence that wants them: [sequences that want them, vocabulary],
  // valid until the next call. REQUIRES: 1 to max_tokens tokens, all ids inside the vocabulary,
  // positions inside the context, slots inside the pool. Calls `before_attention` before it reads
  // cached keys and values of a layer, which may still be on their way.
  using BeforeAttention = std::function<void(int64_t layer)>;
  std::span<const float> forward(const ForwardBatch& batch, void* kv,
                                 const BeforeAttention& before_attention = {});

 private:
  void feed_forward(const LlamaWeights::Layer& layer, int64_t n_tokens);
  void multiply(const std::vector<float>& x, int64_t n_tokens,
                const kernels::PackedWeights& weights, std::vector<float>& y);

  // Constant after construction.
  LlamaWeights weights_;
  int64_t max_tokens_;
  kernels::ThreadPool& pool_;
  kernels::KvType kv_type_;
  Activations activations_;
  kernels::RopeTable rope_;
  // Scratch of one call.
  std::vector<float> residual_;  // [max_tokens, width]
  std::vector<float> delta_;     // [max_tokens, width]: what the last sublayer adds to it
  std::vector<float> normed_;    // [max_tokens, width]
  std::vector<float> wide_;      // [max_tokens, max(qkv_width, 2 · feed_forward_width)]
  std::vector<float> inner_;     // [max_tokens, max(n_heads · head_dim, feed_forward_width)]
  std::vector<float> logits_;
  kernels::AttentionScratch attention_scratch_;
  kernels::Int8Rows rounded_;
};

}  // namespace ragcache::worker
