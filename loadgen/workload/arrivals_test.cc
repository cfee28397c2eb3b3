#include "loadgen/workload/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 10;

Workload workload_of(size_t requests) {
  Workload workload{.name = "test"};
  workload.requests.resize(requests);
  return workload;
}

std::vector<double> seconds(const std::vector<Duration>& times) {
  std::vector<double> seconds;
  for (const Duration time : times) seconds.push_back(to_seconds(time));
  return seconds;
}

// Variance over mean of the numbers of arrivals in windows; 1 of a Poisson process.
double dispersion(const std::vector<double>& times, double window_s) {
  std::vector<double> counts(static_cast<size_t>(times.back() / window_s));
  for (const double time : times) {
    const auto window = static_cast<size_t>(time / window_s);
    if (window < counts.size()) ++counts[window];
  }
  double mean = 0;
  for (const double count : counts) mean += count / static_cast<double>(counts.size());
  double variance = 0;
  for (const double count : counts) {
    variance += (count - mean) * (count - mean) / static_cast<double>(counts.size() - 1);
  }
  return variance / mean;
}

TEST(Arrivals, OfPoissonHaveExponentialGapsOfTheRate) {
  constexpr size_t kRequests = 20'000;
  constexpr double kRate = 7;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    const auto times = seconds(*arrivals(workload_of(kRequests), {.rate = kRate, .seed = seed}));
    ASSERT_EQ(times.size(), kRequests);
    ASSERT_TRUE(std::ranges::is_sorted(times));
    std::vector<double> gaps{times[0]};
    for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
    // The mean of n gaps deviates by 1/sqrt(n) of itself; four times that.
    EXPECT_NEAR(times.back() * kRate / kRequests, 1, 4 / std::sqrt(kRequests));
    // Kolmogorov and Smirnov: beyond this with a probability of 0.0006 only.
    std::sort(gaps.begin(), gaps.end());
    double distance = 0;
    for (size_t i = 0; i < gaps.size(); ++i) {
      const double expected = 1 - std::exp(-kRate * gaps[i]);
      distance = std::max({distance, expected - static_cast<double>(i) / kRequests,
                           static_cast<double>(i + 1) / kRequests - expected});
    }
    EXPECT_LT(distance * std::sqrt(kRequests), 2.0);
    EXPECT_NEAR(dispersion(times, 10), 1, 0.35);
  }
}

TEST(Arrivals, OfBurstsHaveTheRateAndTheDispersionOfAnInterruptedProcess) {
  constexpr size_t kRequests = 200'000;
  const ArrivalOptions bursts{
      .process = "bursts", .rate = 5, .burst_share = 0.25, .burst_period_s = 10};
  // In long windows 1 + 2 l a / (a + b)^2: l arrivals a second within bursts, which end at the rate
  // a and begin at the rate b.
  const double ends = 1 / (bursts.burst_share * bursts.burst_period_s);
  const double begins = 1 / ((1 - bursts.burst_share) * bursts.burst_period_s);
  const double expected =
      1 + 2 * bursts.rate / bursts.burst_share * ends / ((ends + begins) * (ends + begins));
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    ArrivalOptions options = bursts;
    options.seed = seed;
    const auto times = seconds(*arrivals(workload_of(kRequests), options));
    ASSERT_TRUE(std::ranges::is_sorted(times));
    // The count of a long time deviates by sqrt(expected / count) of itself.
    EXPECT_NEAR(times.back() * options.rate / kRequests, 1, 4 * std::sqrt(expected / kRequests));
    const double measured = dispersion(times, 20 * options.burst_period_s);
    EXPECT_GT(measured, 0.5 * expected);
    EXPECT_LT(measured, 1.5 * expected);
  }
}

TEST(Arrivals, WithoutSilencesArePoisson) {
  const auto times = seconds(*arrivals(
      workload_of(50'000), {.process = "bursts", .rate = 5, .burst_share = 1, .seed = 3}));
  EXPECT_NEAR(dispersion(times, 10), 1, 0.25);
}

TEST(Arrivals, ComeFromTheSeedAlone) {
  for (const char* process : {"poisson", "bursts"}) {
    const auto first = *arrivals(workload_of(100), {.process = process, .seed = 1});
    EXPECT_EQ(first, *arrivals(workload_of(100), {.process = process, .seed = 1}));
    EXPECT_NE(first, *arrivals(workload_of(100), {.process = process, .seed = 2}));
  }
}

TEST(Arrivals, OfARecordingKeepItsGaps) {
  Workload workload = workload_of(3);
  workload.has_times = true;
  workload.requests[1].recorded_s = 4;
  workload.requests[2].recorded_s = 6;
  EXPECT_THAT(
      *arrivals(workload, {.process = "recorded", .speedup = 8}),
      ElementsAre(Duration{0}, std::chrono::milliseconds(500), std::chrono::milliseconds(750)));
}

TEST(Arrivals, NameTheOptionThatIsWrong) {
  const auto error = [](const ArrivalOptions& options) {
    return std::string(arrivals(workload_of(1), options).status().message());
  };
  EXPECT_EQ(error({.process = "recorded"}), "arrivals: is \"recorded\", but test has no times");
  EXPECT_EQ(error({.process = "even"}),
            "arrivals: is \"even\", must be of poisson, bursts, recorded");
  EXPECT_THAT(error({.rate = 0}), HasSubstr("rate: is 0, must be from 0.001"));
  EXPECT_THAT(error({.rate = std::nan("")}), HasSubstr("rate: is nan"));
  EXPECT_THAT(error({.process = "bursts", .burst_share = 1.5}), HasSubstr("burst_share: is 1.5"));
  EXPECT_THAT(error({.process = "bursts", .burst_period_s = 0}), HasSubstr("burst_period_s: is 0"));
}

}  // namespace
}  // namespace ragcache::loadgen
