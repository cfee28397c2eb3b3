#include "services/worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

// At a position, with no more to penalise than token 0.
uint32_t sample(Sampler& sampler, const std::vector<float>& logits,
                const SamplingParameters& parameters, uint64_t position) {
  return sampler.sample(logits, parameters, std::vector<uint32_t>(position), position);
}

TEST(Sampler, TakesTheLowestIdAmongEqualBestLogitsWhenGreedy) {
  Sampler sampler;
  EXPECT_EQ(sample(sampler, {1, 5, 5, 2}, {}, 0), 1u);
}

TEST(Sampler, DrawsByWeightAndTheSameForTheSameSeedAndPosition) {
  Sampler sampler, other;
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  std::map<uint32_t, int> counts;
  for (uint64_t position = 0; position < 5000; ++position) {
    const SamplingParameters parameters{.temperature = 1, .seed = 7};
    const uint32_t id = sample(sampler, logits, parameters, position);
    EXPECT_EQ(sample(other, logits, parameters, position), id);
    ++counts[id];
  }
  EXPECT_NEAR(counts[0], 2500, 150);
  EXPECT_NEAR(counts[1], 1500, 150);
  EXPECT_NEAR(counts[2], 1000, 150);
}

TEST(Sampler, DrawsOnlyFromTheBestOfTopKAndTopP) {
  Sampler sampler;
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  std::map<uint32_t, int> top_k, top_p;
  for (uint64_t position = 0; position < 5000; ++position) {
    ++top_k[sample(sampler, logits, {.temperature = 1, .top_k = 2, .seed = 3}, position)];
    ++top_p[sample(sampler, logits, {.temperature = 1, .top_p = 0.75f, .seed = 3}, position)];
  }
  EXPECT_EQ(top_k.size(), 2u);
  EXPECT_NEAR(top_k[1], 5000 * 4 / 7, 200);
  EXPECT_NEAR(top_k[2], 5000 * 3 / 7, 200);
  EXPECT_EQ(top_p.size(), 3u);
  EXPECT_EQ(top_p.count(0), 0u);
  EXPECT_NEAR(top_p[3], 5000 * 2 / 9, 200);
}

TEST(Sampler, DropsWhatIsLessLikelyThanMinPOfTheLikeliest) {
  Sampler sampler;
  const std::vector<float> logits{std::log(0.1f), std::log(0.5f), std::log(0.26f), std::log(0.14f)};
  std::map<uint32_t, int> all, half;
  for (uint64_t position = 0; position < 3000; ++position) {
    ++all[sample(sampler, logits, {.temperature = 1, .seed = 5, .min_p = 0.1f}, position)];
    ++half[sample(sampler, logits, {.temperature = 1, .seed = 5, .min_p = 0.5f}, position)];
  }
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(half.size(), 2u);
  EXPECT_NEAR(half[2], 3000 * 26 / 76, 150);
}

TEST(Sampler, KeepsTheSameTokensOfTopPWhateverTheirOrder) {
  // A flat distribution over many ids: the selection must not depend on how it is made.
  Sampler sampler;
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) / 500;
  double sum = 0;
  std::vector<std::pair<float, uint32_t>> order;
  for (uint32_t i = 0; i < logits.size(); ++i) {
    sum += std::exp(logits[i]);
    order.emplace_back(-logits[i], i);
  }
  std::sort(order.begin(), order.end());
  std::set<uint32_t> kept;
  double mass = 0;
  for (const auto& [negative, id] : order) {
    if (mass >= 0.3 * sum) break;
    mass += std::exp(-negative);
    kept.insert(id);
  }
  for (uint64_t position = 0; position < 500; ++position) {
    EXPECT_TRUE(kept.contains(
        sample(sampler, logits, {.temperature = 1, .top_p = 0.3f, .seed = 9}, position)));
  }
}

TEST(Sampler, PenalisesTheAnswersTokensAloneAndRepetitionThePromptsToo) {
  Sampler sampler;
  const std::vector<float> logits{2.0f, 1.8f, 1.6f, -1.0f};
  const auto greedy = [&](const SamplingParameters& parameters, std::vector<uint32_t> prompt,
                          const std::vector<uint32_t>& answer) {
    const size_t prompt_tokens = prompt.size();
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    return sampler.sample(logits, parameters, prompt, prompt_tokens);
  };
  const SamplingParameters presence{.presence_penalty = 0.3f};
  EXPECT_EQ(greedy(presence, {0, 0}, {}), 0u);
  EXPECT_EQ(greedy(presence, {}, {0}), 1u);
  EXPECT_EQ(greedy(presence, {}, {0, 0, 0, 1}), 0u);  // once, however often
  EXPECT_EQ(greedy(presence, {}, {0, 1, 1}), 0u);
  const SamplingParameters frequency{.frequency_penalty = 0.15f};
  EXPECT_EQ(greedy(frequency, {0, 0, 0}, {0}), 0u);
  EXPECT_EQ(greedy(frequency, {}, {0, 0}), 1u);
  EXPECT_EQ(greedy(frequency, {}, {0, 1, 0, 1, 0}), 2u);
  const SamplingParameters repetition{.repetition_penalty = 1.3f};
  EXPECT_EQ(greedy(repetition, {0}, {}), 1u);
  EXPECT_EQ(greedy(repetition, {0}, {1, 1}), 2u);
  EXPECT_EQ(greedy(repetition, {0, 1, 2}, {3}), 0u);
  // A logit below 0 is multiplied.
  const SamplingParameters favour{.repetition_penalty = 0.5f,
                                  .logit_bias = {{0, -3}, {1, -3}, {2, -3}}};
  EXPECT_EQ(greedy(favour, {}, {}), 0u);
  EXPECT_EQ(greedy(favour, {3}, {}), 3u);
  EXPECT_EQ(greedy({}, {0}, {0, 0}), 0u);
}

TEST(Sampler, AddsBiasesToTheLogitsBeforeTheDraw) {
  Sampler sampler;
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(sample(sampler, logits, {.logit_bias = {{2, 100}}}, 1), 2u);
  std::map<uint32_t, int> counts;
  for (uint64_t position = 0; position < 3000; ++position) {
    ++counts[sample(sampler, logits,
                    {.temperature = 1, .seed = 2, .logit_bias = {{0, -100}, {1, std::log(2.0f)}}},
                    position)];
  }
  EXPECT_EQ(counts.count(0), 0u);
  EXPECT_NEAR(counts[1], 3000 * 6 / 8, 150);
}

TEST(TokenLogprob, IsOfTheModelsOwnDistributionWithTheLikeliestFirst) {
  const std::vector<float> logits{std::log(0.1f) + 7, std::log(0.4f) + 7, std::log(0.1f) + 7,
                                  std::log(0.4f) + 7};
  const TokenLogprob logprob = token_logprob(logits, 2, 3);
  EXPECT_NEAR(logprob.logprob, std::log(0.1), 1e-5);
  EXPECT_EQ(logprob.top_ids, (std::vector<uint32_t>{1, 3, 0}));
  ASSERT_EQ(logprob.top_logprobs.size(), 3u);
  EXPECT_NEAR(logprob.top_logprobs[0], std::log(0.4), 1e-5);
  EXPECT_NEAR(logprob.top_logprobs[2], std::log(0.1), 1e-5);
  EXPECT_TRUE(token_logprob(logits, 0, 0).top_ids.empty());
  EXPECT_EQ(token_logprob(logits, 0, 20).top_ids.size(), 4u);
}

TEST(Sampler, SurvivesExtremeTemperatures) {
  Sampler sampler;
  const std::vector<float> logits{-100, 50, 49, -3e38f};
  EXPECT_EQ(sample(sampler, logits, {.temperature = 1e-30f, .seed = 1}, 4), 1u);
  EXPECT_LT(sample(sampler, logits, {.temperature = 1e30f, .top_p = 0.5f, .seed = 1}, 4), 4u);
}

}  // namespace
}  // namespace ragcache::worker
