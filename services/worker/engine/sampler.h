#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/messages.h"

namespace ragcache::worker {

// Draws a request's next token. Keeps its scratch; one thread.
class Sampler {
 public:
  // The token that follows `tokens`, of which the first `prompt_tokens` are the prompt's and the
  // rest the answer's.
  //
  // Penalties and biases change the logits first. At temperature 0 the best one wins (the lowest id
  // of equals). Otherwise one is drawn by weight, of the tokens that min_p leaves, then the top_k
  // best of those, then the best of those that together have the probability top_p. The draw
  // depends on (seed, position) and the changed logits alone, and hardly on the logits' last bits.
  //
  // REQUIRES: all ids are inside the vocabulary.
  uint32_t sample(std::span<const float> logits,  // [vocabulary]
                  const SamplingParameters& parameters, std::span<const uint32_t> tokens,
                  size_t prompt_tokens);

 private:
  struct Candidate {
    uint32_t id;
    float logit;
    double weight;
  };

  std::span<const float> adjust(std::span<const float> logits, const SamplingParameters& parameters,
                                std::span<const uint32_t> tokens, size_t prompt_tokens);

  std::vector<Candidate> candidates_;
  std::vector<float> adjusted_;
  std::vector<bool> seen_;  // all false between calls
};

// The natural logarithm of the probability that the model itself gives `token`, and those of the
// `top` likeliest ones (ties by id).
TokenLogprob token_logprob(std::span<const float> logits,  // [vocabulary]
                           uint32_t token, uint32_t top);

}  // namespace ragcache::worker
