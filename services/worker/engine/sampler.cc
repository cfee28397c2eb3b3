#include "services/worker/engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace ragcache::worker {
namespace {

// SplitMix64 (Steele et al., 2014): a good 64-bit mix of its input.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Uniform in [0, 1).
double uniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

}  // namespace

uint32_t Sampler::sample(std::span<const float> logits, const SamplingParameters& parameters,
                         uint64_t position) {
  RAG_CHECK(!logits.empty());
  const auto best = std::max_element(logits.begin(), logits.end());
  if (parameters.temperature == 0.0f) return static_cast<uint32_t>(best - logits.begin());

  candidates_.clear();
  for (uint32_t id = 0; id < logits.size(); ++id) candidates_.push_back({id, logits[id], 0.0});
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (parameters.top_k > 0 && parameters.top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + parameters.top_k - 1,
                     candidates_.end(), better);
    candidates_.resize(parameters.top_k);
  }
  double sum = 0;
  if (parameters.top_p < 1.0f) std::sort(candidates_.begin(), candidates_.end(), better);
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((double{candidate.logit} - *best) / parameters.temperature);
    sum += candidate.weight;
  }
  if (parameters.top_p < 1.0f) {
    // At least the best one: its weight is 1.
    double kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && kept < parameters.top_p * sum) {
      kept += candidates_[count++].weight;
    }
    candidates_.resize(count);
    sum = kept;
  }
  if (candidates_.size() < logits.size()) {
    // In order of id, so that the draw does not depend on how the selection left them.
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
  double rest = uniform(parameters.seed, position) * sum;
  for (const Candidate& candidate : candidates_) {
    rest -= candidate.weight;
    if (rest < 0) return candidate.id;
  }
  return candidates_.back().id;
}

}  // namespace ragcache::worker
