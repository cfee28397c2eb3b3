#include "services/worker/engine/iteration_cost.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

constexpr double kLimit = 0.2;

// A machine with costs of its own, some noise, and other work that slows it at times.
struct Machine {
  double constant;
  double token;
  double pair;
  double noise = 0;
  double slowness = 1;
  std::mt19937 random{7};

  double run(const IterationCost::Work& work) {
    const double seconds = constant + token * static_cast<double>(work.tokens) +
                           pair * static_cast<double>(work.pairs);
    std::uniform_real_distribution<double> scatter(1 - noise, 1 + noise);
    return seconds * slowness * scatter(random);
  }
  // The most tokens that really fit.
  size_t best(IterationCost::Work work, size_t context) const {
    size_t count = 0;
    for (;; ++count) {
      IterationCost::Work more = work;
      more.add(count + 1, context);
      if (constant + token * static_cast<double>(more.tokens) +
              pair * static_cast<double>(more.pairs) >
          kLimit) {
        return count;
      }
    }
  }
};

struct Prefilled {
  int iterations = 0;
  int overran = 0;
  double longest = 0;
};

// A prompt enters beside `streams` that decode at a context of 500.
Prefilled prefill(IterationCost& cost, Machine& machine, size_t tokens, size_t streams) {
  Prefilled run;
  for (size_t computed = 0; computed < tokens; ++run.iterations) {
    IterationCost::Work work;
    for (size_t i = 0; i < streams; ++i) work.add(1, 500);
    const size_t wanted = std::min<size_t>(512, tokens - computed);
    const size_t count = std::max(cost.fit(work, computed, wanted, kLimit),
                                  std::min(wanted, IterationCost::kGranule));
    work.add(count, computed);
    const double seconds = machine.run(work);
    cost.observe(work, seconds, kLimit);
    computed += count;
    run.longest = std::max(run.longest, seconds);
    if (seconds > kLimit) ++run.overran;
  }
  return run;
}

TEST(IterationCost, KeepsToTheLimitOnMachinesOfEverySpeed) {
  const Machine machines[] = {
      {0.010, 0.0024, 1.5e-7}, {0.060, 0.0022, 3e-7}, {0.001, 0.0002, 1e-8},
      {0.0, 0.004, 0},         {0.080, 0.0010, 1e-6},
  };
  for (Machine machine : machines) {
    SCOPED_TRACE(testing::Message() << machine.constant << " " << machine.token);
    IterationCost cost;
    prefill(cost, machine, 100, 0);  // the streams' own prompts
    const Prefilled run = prefill(cost, machine, 2048, 4);
    EXPECT_EQ(run.overran, 0) << run.longest;
  }
}

TEST(IterationCost, UsesMostOfTheTimeOnceItKnowsTheMachine) {
  Machine machine{0.040, 0.0022, 3e-7};
  IterationCost cost;
  prefill(cost, machine, 2048, 4);
  for (const size_t context : {0, 500, 1500}) {
    IterationCost::Work work;
    for (int i = 0; i < 4; ++i) work.add(1, 500);
    const size_t fitting = cost.fit(work, context, 512, kLimit);
    EXPECT_LE(fitting, machine.best(work, context));
    EXPECT_GE(fitting + IterationCost::kGranule, machine.best(work, context) * 7 / 10);
  }
}

TEST(IterationCost, SeldomOverrunsThoughTimesScatter) {
  Machine machine{0.040, 0.0022, 3e-7, 0.08};
  IterationCost cost;
  prefill(cost, machine, 500, 4);
  int iterations = 0, overran = 0;
  double longest = 0;
  for (int prompt = 0; prompt < 20; ++prompt) {
    const Prefilled run = prefill(cost, machine, 2048, 4);
    iterations += run.iterations;
    overran += run.overran;
    longest = std::max(longest, run.longest);
  }
  EXPECT_LT(overran, iterations / 20);
  EXPECT_LT(longest, 1.15 * kLimit);
}

TEST(IterationCost, FollowsAMachineThatGrowsSlowerAndFasterAgain) {
  Machine machine{0.020, 0.0022, 3e-7};
  IterationCost cost;
  prefill(cost, machine, 2048, 4);
  machine.slowness = 2.5;
  EXPECT_LE(prefill(cost, machine, 2048, 4).overran, 4);
  EXPECT_EQ(prefill(cost, machine, 2048, 4).overran, 0);
  const int slow = prefill(cost, machine, 2048, 4).iterations;
  machine.slowness = 1;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(prefill(cost, machine, 2048, 4).overran, 0);
  EXPECT_LT(prefill(cost, machine, 2048, 4).iterations, slow * 2 / 3);
}

TEST(IterationCost, BeginsWithFewTokensAndGivesWholeGranules) {
  IterationCost cost;
  EXPECT_EQ(cost.fit({}, 0, 512, 1000.0), IterationCost::kFirstTokens);
  EXPECT_EQ(cost.fit({}, 0, 5, 1000.0), 5u);
  EXPECT_EQ(cost.fit({.tokens = 60, .pairs = 60}, 0, 512, 1000.0), 4u);
  IterationCost::Work work;
  work.add(64, 0);
  cost.observe(work, 0.1, kLimit);
  EXPECT_EQ(cost.fit({}, 0, 512, 1e-9), 0u);
  EXPECT_EQ(cost.fit({}, 0, 512, kLimit) % IterationCost::kGranule, 0u);
  EXPECT_GE(cost.fit({}, 0, 512, kLimit), 64u);
  EXPECT_EQ(cost.fit({}, 0, 37, kLimit), 37u);
}

}  // namespace
}  // namespace ragcache::worker
