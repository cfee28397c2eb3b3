#include "services/controller/policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "services/controller/policy/adaptive.h"
#include "services/controller/policy/prefill_cost.h"
#include "services/controller/policy/shadow_cache.h"

namespace ragcache::controller {
namespace {

using ::testing::HasSubstr;

SegmentId id_of(const std::string& name) { return SegmentId::root(sha256(name), ""); }

// A policy and the story of some nodes.
class Story {
 public:
  explicit Story(const std::string& name, const PolicyOptions& options = {})
      : policy_(*make_policy(name, options)) {}

  // A request for one node alone, computed at this cost for each of these tokens in all.
  void miss(const std::string& node, double seconds, uint32_t new_tokens) {
    policy_->on_request();
    policy_->on_access({id_of(node), 100, false, seconds, new_tokens});
  }
  void hit(const std::string& node) {
    policy_->on_request();
    policy_->on_access({id_of(node), 100, true});
  }
  void leave(const std::string& node) { policy_->on_leave(id_of(node)); }
  double device(const std::string& node) {
    return policy_->priority(id_of(node), 100, Tier::kDevice);
  }
  double host(const std::string& node) { return policy_->priority(id_of(node), 100, Tier::kHost); }
  EvictionPolicy& policy() { return *policy_; }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
};

TEST(Policies, AreMadeByNameAndNamedInTheErrorOfAnUnknownOne) {
  for (const std::string& name : policy_names()) EXPECT_EQ((*make_policy(name))->name(), name);
  EXPECT_THAT(
      std::string(make_policy("mru").status().message()),
      HasSubstr("cache_policy: is \"mru\", must be one of adaptive, pgdsf, gdsf, lru, lfu"));
}

TEST(Pgdsf, MultipliesFrequencyByTheAverageCostOfANewToken) {
  Story story("pgdsf");
  story.miss("A", 6, 30);  // 0.2 s a token
  EXPECT_DOUBLE_EQ(story.device("A"), 0.2);
  story.miss("A", 4, 10);  // 0.4 s; on average 0.3 s
  EXPECT_DOUBLE_EQ(story.device("A"), 2 * 0.3);
  story.hit("A");  // counts, but has no cost
  EXPECT_DOUBLE_EQ(story.device("A"), 3 * 0.3);
}

TEST(Pgdsf, HasAClockForEachTierThatNeverGoesBack) {
  Story story("pgdsf");
  story.policy().on_evict(Tier::kDevice, 0.9);
  story.miss("B", 1, 10);
  EXPECT_DOUBLE_EQ(story.device("B"), 0.9 + 0.1);
  EXPECT_DOUBLE_EQ(story.host("B"), 0.1);
  story.policy().on_evict(Tier::kDevice, 0.5);
  EXPECT_DOUBLE_EQ(story.device("B"), 0.9 + 0.1);
  story.policy().on_evict(Tier::kHost, 2);
  EXPECT_DOUBLE_EQ(story.host("B"), 2 + 0.1);
  EXPECT_DOUBLE_EQ(story.device("unknown"), 0.9);
}

TEST(Pgdsf, CountsFrequencyInASlidingWindowOfRequests) {
  Story story("pgdsf", {.window_requests = 3});
  story.miss("A", 1, 10);
  story.hit("A");
  EXPECT_DOUBLE_EQ(story.device("A"), 2 * 0.1);
  story.miss("B", 1, 10);
  EXPECT_DOUBLE_EQ(story.device("A"), 2 * 0.1);
  story.hit("B");  // the first request leaves the window
  EXPECT_DOUBLE_EQ(story.device("A"), 1 * 0.1);
  story.hit("B");
  EXPECT_DOUBLE_EQ(story.device("A"), 0);
  story.hit("A");  // its cost is still known
  EXPECT_DOUBLE_EQ(story.device("A"), 1 * 0.1);
}

TEST(Pgdsf, ForgottenAccessesDoNotLeaveTheWindowTwice) {
  Story story("pgdsf", {.remember = false, .window_requests = 2});
  story.miss("A", 1, 10);
  story.leave("A");
  story.miss("A", 1, 10);
  story.hit("B");
  EXPECT_DOUBLE_EQ(story.device("A"), 1 * 0.1);
}

TEST(Pgdsf, TakesTheDocumentAloneWhereItNeverSawAMiss) {
  PolicyOptions options;
  options.prefill_seconds = [](uint32_t cached, uint32_t fresh) { return cached + 0.5 * fresh; };
  Story story("pgdsf", options);
  story.hit("restored");
  EXPECT_DOUBLE_EQ(story.device("restored"), 0.5);
}

TEST(Gdsf, MultipliesFrequencyByTheCostOfTheDocumentAlone) {
  PolicyOptions options;
  options.prefill_seconds = [](uint32_t cached, uint32_t fresh) { return cached + 7.0 * fresh; };
  Story story("gdsf", options);
  story.miss("A", 99, 1);
  story.hit("A");
  EXPECT_DOUBLE_EQ(story.device("A"), 2 * 7);
  story.policy().on_evict(Tier::kDevice, 5);
  EXPECT_DOUBLE_EQ(story.device("A"), 5 + 2 * 7);
  EXPECT_DOUBLE_EQ(story.host("A"), 2 * 7);
}

TEST(Lru, OrdersByTheLastUse) {
  Story story("lru");
  story.miss("A", 1, 1);
  story.miss("B", 1, 1);
  EXPECT_LT(story.device("A"), story.device("B"));
  story.hit("A");
  EXPECT_GT(story.device("A"), story.device("B"));
  EXPECT_EQ(story.device("A"), story.host("A"));
}

TEST(Lfu, OrdersByTheNumberOfUses) {
  Story story("lfu");
  story.miss("A", 1, 1);
  story.hit("A");
  story.hit("B");
  EXPECT_EQ(story.device("A"), 2);
  EXPECT_EQ(story.device("B"), 1);
}

TEST(Policies, RememberNodesThatLeftAsFarAsTheirHistoryReaches) {
  for (const char* name : {"adaptive", "pgdsf", "gdsf", "lfu"}) {
    SCOPED_TRACE(name);
    Story remembering(name, {.history_limit = 2});
    Story forgetting(name, {.remember = false});
    for (Story* story : {&remembering, &forgetting}) {
      for (const char* node : {"A", "B", "C"}) {
        story->miss(node, 1, 10);
        story->hit(node);
      }
    }
    const double once = remembering.device("never seen");
    for (const char* node : {"A", "B", "C", "C"}) {
      remembering.leave(node);
      forgetting.leave(node);
      EXPECT_EQ(forgetting.device(node), once);
    }
    EXPECT_EQ(remembering.device("A"), once);  // the first to leave
    EXPECT_GT(remembering.device("B"), once);
    EXPECT_GT(remembering.device("C"), once);
    // What is in the cache is known beside those.
    remembering.hit("B");
    remembering.miss("D", 1, 10);
    remembering.leave("D");
    EXPECT_GT(remembering.device("B"), once);
    EXPECT_GT(remembering.device("C"), once);
    remembering.policy().clear();
    EXPECT_EQ(remembering.device("B"), once);
  }
}

TEST(Adaptive, AddsTheLogarithmsOfFrequencyAndCostOfTheDocumentAlone) {
  PolicyOptions options;
  options.prefill_seconds = [](uint32_t cached, uint32_t fresh) { return cached + 0.5 * fresh; };
  Story story("adaptive", options);
  EXPECT_EQ(dynamic_cast<AdaptivePolicy&>(story.policy()).half_life(), HUGE_VAL);
  story.miss("A", 99, 1);
  EXPECT_DOUBLE_EQ(story.device("A"), std::log2(0.5));
  for (int i = 0; i < 3; ++i) story.hit("A");
  EXPECT_DOUBLE_EQ(story.device("A"), std::log2(4 * 0.5));  // nothing is forgotten
  EXPECT_EQ(story.device("A"), story.host("A"));
}

// A cache of `capacity` nodes, of which the least goes first; requests for nodes by number.
double half_life_after(const std::function<uint64_t(uint64_t request)>& node_of, uint64_t requests,
                       size_t capacity) {
  AdaptivePolicy policy({});
  std::map<uint64_t, double> cache;
  for (uint64_t i = 0; i < requests; ++i) {
    const uint64_t node = node_of(i);
    policy.on_request();
    policy.on_access({id_of(std::to_string(node)), 100, cache.contains(node), 1, 100});
    cache[node] = policy.priority(id_of(std::to_string(node)), 100, Tier::kDevice);
    if (cache.size() <= capacity) continue;
    auto least = cache.begin();
    for (auto it = cache.begin(); it != cache.end(); ++it) {
      if (it->second < least->second) least = it;
    }
    policy.on_leave(id_of(std::to_string(least->first)));
    cache.erase(least);
  }
  return policy.half_life();
}

TEST(Adaptive, ChoosesALongHalfLifeForSteadyAndAShortOneForDriftingPopularity) {
  std::mt19937_64 random(7);
  auto skewed = [&random](uint64_t n) {  // about as Zipf's law has it
    const double u = static_cast<double>(random() >> 11) / static_cast<double>(uint64_t{1} << 53);
    return static_cast<uint64_t>(std::pow(static_cast<double>(n), u)) - 1;
  };
  const double steady = half_life_after([&](uint64_t) { return skewed(5000); }, 12'000, 60);
  const double drifting =
      half_life_after([&](uint64_t i) { return skewed(200) + i / 300 * 200; }, 12'000, 60);
  EXPECT_GE(steady, 8'000);
  EXPECT_LE(drifting, 2'000);
}

TEST(ShadowCache, KeepsTheHighestScoresThatFit) {
  ShadowCache cache;
  cache.set_capacity(250);
  EXPECT_FALSE(cache.access(id_of("A"), 100, 1));
  EXPECT_FALSE(cache.access(id_of("B"), 100, 3));
  EXPECT_TRUE(cache.access(id_of("A"), 100, 4));
  EXPECT_FALSE(cache.access(id_of("C"), 100, 2));  // the least: it goes at once
  EXPECT_FALSE(cache.access(id_of("C"), 100, 5));  // B goes
  EXPECT_FALSE(cache.access(id_of("B"), 100, 1));
  EXPECT_EQ(cache.size(), 2u);
  cache.erase_if([](const SegmentId& id) { return id == id_of("A"); });
  EXPECT_EQ(cache.size(), 1u);
  cache.set_capacity(99);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(PrefillCost, InterpolatesClampsCachedAndExtrapolatesNewTokens) {
  const PrefillCost cost = *PrefillCost::create({0, 100}, {10, 20}, {1, 2, 3, 5});
  EXPECT_TRUE(cost.measured());
  EXPECT_DOUBLE_EQ(cost.seconds(0, 10), 1);
  EXPECT_DOUBLE_EQ(cost.seconds(100, 20), 5);
  EXPECT_DOUBLE_EQ(cost.seconds(50, 15), (1.5 + 4) / 2);
  EXPECT_DOUBLE_EQ(cost.seconds(25, 10), 1.5);
  EXPECT_DOUBLE_EQ(cost.seconds(5'000, 15), 4);
  EXPECT_DOUBLE_EQ(cost.seconds(0, 30), 3);
  EXPECT_DOUBLE_EQ(cost.seconds(100, 40), 9);
  EXPECT_DOUBLE_EQ(cost.seconds(0, 5), 0.5);
  EXPECT_DOUBLE_EQ(cost.seconds(100, 0), 0);
  const PrefillCost one_row = *PrefillCost::create({7}, {10, 20}, {1, 2});
  EXPECT_DOUBLE_EQ(one_row.seconds(9, 15), 1.5);
}

TEST(PrefillCost, IsNeverNegative) {
  const PrefillCost cost = *PrefillCost::create({0}, {100, 200}, {1, 9});
  EXPECT_GT(cost.seconds(0, 1), 0);
}

TEST(PrefillCost, StandsInUntilAnEngineWasMeasured) {
  const PrefillCost cost = PrefillCost::unmeasured();
  EXPECT_FALSE(cost.measured());
  // 3 + 0.25 β + 1.5e-5 β (α + β / 2) ms
  EXPECT_NEAR(cost.seconds(0, 128), 0.03512288, 1e-12);
  EXPECT_NEAR(cost.seconds(1'000, 128), 0.03704288, 1e-12);
}

TEST(PrefillCost, RefusesDamagedTablesByField) {
  auto error = [](std::vector<uint32_t> cached, std::vector<uint32_t> fresh,
                  std::vector<double> seconds) {
    return std::string(PrefillCost::create(cached, fresh, seconds).status().message());
  };
  EXPECT_EQ(error({}, {1, 2}, {}), "cached_tokens: has 0 values, must have at least 1");
  EXPECT_EQ(error({0}, {1}, {1}), "new_tokens: has 1 values, must have at least 2");
  EXPECT_EQ(error({0, 0}, {1, 2}, {1, 2, 3, 4}), "cached_tokens: must rise, but 0 follows 0");
  EXPECT_EQ(error({0}, {2, 1}, {1, 2}), "new_tokens: must rise, but 1 follows 2");
  EXPECT_THAT(error({0}, {1, 2}, {1}), HasSubstr("seconds: has 1 values, must have one for each"));
  EXPECT_THAT(error({0}, {1, 2}, {1, 0}), HasSubstr("seconds: has 0, must be above 0"));
  EXPECT_THAT(error({0}, {1, 2}, {1, std::nan("")}), HasSubstr("seconds: has nan"));
}

}  // namespace
}  // namespace ragcache::controller
