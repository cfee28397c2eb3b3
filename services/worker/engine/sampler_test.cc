#include "services/worker/engine/sampler.h"

#include <cmath>
#include <map>

#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

TEST(Sampler, TakesTheLowestIdAmongEqualBestLogitsWhenGreedy) {
  Sampler sampler;
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 5, 2}, {}, 0), 1u);
}

TEST(Sampler, DrawsByWeightAndTheSameForTheSameSeedAndPosition) {
  Sampler sampler, other;
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  std::map<uint32_t, int> counts;
  for (uint64_t position = 0; position < 20000; ++position) {
    const SamplingParameters parameters{.temperature = 1, .seed = 7};
    const uint32_t id = sampler.sample(logits, parameters, position);
    EXPECT_EQ(other.sample(logits, parameters, position), id);
    ++counts[id];
  }
  EXPECT_NEAR(counts[0], 10000, 300);
  EXPECT_NEAR(counts[1], 6000, 300);
  EXPECT_NEAR(counts[2], 4000, 300);
}

TEST(Sampler, DrawsOnlyFromTheBestOfTopKAndTopP) {
  Sampler sampler;
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  std::map<uint32_t, int> top_k, top_p;
  for (uint64_t position = 0; position < 5000; ++position) {
    ++top_k[sampler.sample(logits, {.temperature = 1, .top_k = 2, .seed = 3}, position)];
    ++top_p[sampler.sample(logits, {.temperature = 1, .top_p = 0.75f, .seed = 3}, position)];
  }
  EXPECT_EQ(top_k.size(), 2u);
  EXPECT_NEAR(top_k[1], 5000 * 4 / 7, 200);
  EXPECT_NEAR(top_k[2], 5000 * 3 / 7, 200);
  EXPECT_EQ(top_p.size(), 3u);
  EXPECT_EQ(top_p.count(0), 0u);
  EXPECT_NEAR(top_p[3], 5000 * 2 / 9, 200);
}

TEST(Sampler, SurvivesExtremeTemperatures) {
  Sampler sampler;
  const std::vector<float> logits{-100, 50, 49, -3e38f};
  EXPECT_EQ(sampler.sample(logits, {.temperature = 1e-30f, .seed = 1}, 4), 1u);
  EXPECT_LT(sampler.sample(logits, {.temperature = 1e30f, .top_p = 0.5f, .seed = 1}, 4), 4u);
}

}  // namespace
}  // namespace ragcache::worker
