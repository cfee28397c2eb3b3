#include "services/worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

// Uniform in (0, 1).
double uniform(uint64_t seed, uint64_t position, uint32_t token) {
  const uint64_t bits = mix(mix(mix(seed) ^ position) ^ token);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       const SamplingParameters& parameters,
                                       std::span<const uint32_t> tokens, size_t prompt_tokens) {
  const bool repetition = parameters.repetition_penalty != 1.0f;
  const bool others = parameters.presence_penalty != 0.0f || parameters.frequency_penalty != 0.0f;
  if (!repetition && !others && parameters.logit_bias.empty()) return logits;

  adjusted_.assign(logits.begin(), logits.end());
  seen_.resize(logits.size());
  // Calls `first` once for each different token.
  const auto for_each_different = [this](std::span<const uint32_t> ids, const auto& first) {
    for (const uint32_t id : ids) {
      if (seen_[id]) continue;
      seen_[id] = true;
      first(adjusted_[id]);
    }
    for (const uint32_t id : ids) seen_[id] = false;
  };
  if (repetition) {
    // Keskar et al., 2019 (CTRL), as implementations do it: towards less likely on either side of
    // 0.
    for_each_different(tokens, [penalty = parameters.repetition_penalty](float& logit) {
      logit = logit > 0 ? logit / penalty : logit * penalty;
    });
  }
  if (others) {
    const auto answer = tokens.subspan(prompt_tokens);
    for (const uint32_t id : answer) adjusted_[id] -= parameters.frequency_penalty;
    for_each_different(answer, [&](float& logit) { logit -= parameters.presence_penalty; });
  }
  for (const LogitBias& bias : parameters.logit_bias) adjusted_[bias.token] += bias.bias;
  return adjusted_;
}

uint32_t Sampler::sample(std::span<const float> logits, const SamplingParameters& parameters,
                         std::span<const uint32_t> tokens, size_t prompt_tokens) {
  RAG_CHECK(!logits.empty() && prompt_tokens <= tokens.size());
  logits = adjust(logits, parameters, tokens, prompt_tokens);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (parameters.temperature == 0.0f) return static_cast<uint32_t>(best - logits.begin());

  candidates_.clear();
  for (uint32_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((double{logits[id]} - *best) / parameters.temperature);
    // The best one's weight is 1.
    if (weight >= parameters.min_p) candidates_.push_back({id, logits[id], weight});
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (parameters.top_k > 0 && parameters.top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + parameters.top_k - 1,
                     candidates_.end(), better);
    candidates_.resize(parameters.top_k);
  }
  if (parameters.top_p < 1.0f) {
    double sum = 0;
    for (const Candidate& candidate : candidates_) sum += candidate.weight;
    // A heap, since the best few are mostly enough: they gather at the end.
    const auto worse = [&](const Candidate& a, const Candidate& b) { return better(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), worse);
    auto rest = candidates_.end();
    double kept = 0;
    while (rest != candidates_.begin() && kept < parameters.top_p * sum) {
      std::pop_heap(candidates_.begin(), rest, worse);
      kept += (--rest)->weight;
    }
    candidates_.erase(candidates_.begin(), rest);
  }
  // The Gumbel-max trick as a race (Efraimidis and Spirakis, 2006): each token arrives after a time
  // of its own, exponential with its weight as the rate, and the first one is drawn. A token's time
  // depends on its own weight alone, so that where the last bits of logits differ (another batch, a
  // cached prefix) the draw differs only if two tokens arrive almost together.
  uint32_t first = 0;
  double earliest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates_) {
    const double time = -std::log(uniform(parameters.seed, tokens.size(), candidate.id));
    const double arrival = time / candidate.weight;
    if (arrival < earliest || (arrival == earliest && candidate.id < first)) {
      earliest = arrival;
      first = candidate.id;
    }
  }
  return first;
}

TokenLogprob token_logprob(std::span<const float> logits, uint32_t token, uint32_t top) {
  RAG_CHECK(token < logits.size());
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - best);
  const double log_sum = best + std::log(sum);
  const auto logprob = [&](uint32_t id) { return static_cast<float>(logits[id] - log_sum); };

  TokenLogprob result{.logprob = logprob(token)};
  std::vector<uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  const size_t count = std::min<size_t>(top, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](uint32_t a, uint32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  for (size_t i = 0; i < count; ++i) {
    result.top_ids.push_back(ids[i]);
    result.top_logprobs.push_back(logprob(ids[i]));
  }
  return result;
}

}  // namespace ragcache::worker
