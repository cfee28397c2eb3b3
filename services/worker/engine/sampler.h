#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/messages.h"

namespace ragcache::worker {

// Draws a request's next token. Keeps its scratch; one thread.
class Sampler {
 public:
  // The best logit's id (the lowest of equals) at temperature 0; otherwise one of the top_k best
  // of them that together have the probability top_p, by weight. The draw depends on
  // (seed, position) and the logits alone.
  uint32_t sample(std::span<const float> logits,  // [vocabulary]
                  const SamplingParameters& parameters, uint64_t position);

 private:
  struct Candidate {
    uint32_t id;
    float logit;
    double weight;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace ragcache::worker
