#include "loadgen/experiment/prediction.h"

#include <gtest/gtest.h>

namespace ragcache::loadgen {
namespace {

using controller::PrefillCost;
using std::chrono::seconds;

// A chain of a system prompt of ten tokens and these documents, and a question of five.
std::shared_ptr<const controller::PromptPlan> plan_of(const Material& material,
                                                      const std::vector<uint32_t>& documents) {
  auto plan = std::make_shared<controller::PromptPlan>();
  plan->chain.push_back({SegmentId::root(sha256("m"), "s"), 10});
  for (const uint32_t place : documents) {
    plan->chain.push_back({SegmentId{}, material.trace.documents[place].tokens});
  }
  plan->tail.resize(5);
  return plan;
}

Material material_of(std::vector<std::vector<uint32_t>> requests) {
  Material material{.documents = std::move(requests)};
  material.trace.name = "test";
  material.trace.documents = {{"a", 100}, {"b", 200}, {"c", 300}};
  material.trace.requests = material.documents;
  for (const auto& documents : material.documents) {
    material.plans.push_back(plan_of(material, documents));
  }
  return material;
}

// T(cached, new) = a millisecond a new token, whatever is cached.
PrefillCost millisecond_a_token() { return *PrefillCost::create({0}, {1, 1000}, {0.001, 1.0}); }

TEST(Prediction, ChargesWhatIsNotCached) {
  const Material material = material_of({{0, 1}, {0, 1}, {0, 2}, {2}});
  const auto seconds =
      prefill_seconds(material, {.policy = "lru", .device_tokens = 10'000}, millisecond_a_token());
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  // The system prompt is always there.
  const std::vector<double> expected{.305, .005, .305, .305};
  ASSERT_EQ(seconds->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR((*seconds)[i], expected[i], 1e-9) << i;
}

TEST(Prediction, ChargesAllWithoutReuse) {
  const Material material = material_of({{0, 1}, {0, 1}});
  const auto seconds = prefill_seconds(material, {.reuses = false}, millisecond_a_token());
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  for (const double each : *seconds) EXPECT_NEAR(each, .315, 1e-9);
}

TEST(Prediction, RefusesAPolicyThatThereIsNot) {
  EXPECT_FALSE(prefill_seconds(material_of({{0}}), {.policy = "fifo"}, millisecond_a_token()).ok());
}

TEST(Prediction, QueuesThoseThatComeTooSoon) {
  // Served 0–2, 2–5 (one second late), 10–11.
  EXPECT_DOUBLE_EQ(queued_ttft_ms({seconds(0), seconds(1), seconds(10)}, {2, 3, 1}),
                   1000.0 * (2 + 4 + 1) / 3);
  EXPECT_EQ(queued_ttft_ms({}, {}), 0);
}

}  // namespace
}  // namespace ragcache::loadgen
