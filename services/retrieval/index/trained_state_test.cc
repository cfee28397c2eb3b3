#include "services/retrieval/index/trained_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "common/hash.h"
#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using ::testing::HasSubstr;
using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 24;

IndexOptions options_of(Kind kind) {
  return {.kind = kind, .dimension = kDimension, .ivf_lists = 8, .pq_subvectors = 6, .pq_bits = 4};
}

std::vector<float> sample_of(size_t count) {
  ClusteredVectors vectors(kDimension, 10, 0.8f, 7);
  std::vector<float> sample;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<float> vector = vectors.next();
    sample.insert(sample.end(), vector.begin(), vector.end());
  }
  return sample;
}

std::string trained_by(Kind kind) {
  const TrainingPlan plan = plan_training(options_of(kind), 800, nullptr);
  return train_index(options_of(kind), plan, sample_of(800), {}, {}).value();
}

TEST(TrainingPlan, WaitsForVectorsAndForGrowth) {
  IndexOptions options = {.kind = Kind::kIvfPq, .dimension = 64};
  EXPECT_EQ(plan_training(options, 256 * 39 - 1, nullptr).lists, 0u);
  const TrainingPlan plan = plan_training(options, 256 * 39, nullptr);
  EXPECT_EQ(plan.lists, 256u);
  EXPECT_EQ(plan.sample_min, 256u * 39);
  TrainedInfo trained = {.trained_on = 10'000};
  EXPECT_EQ(plan_training(options, 39'999, &trained).lists, 0u);
  EXPECT_EQ(plan_training(options, 40'000, &trained).lists, 512u);
  options.ivf_lists = 100;
  EXPECT_EQ(plan_training(options, 40'000, &trained).lists, 0u);
  options.kind = Kind::kHnsw;
  EXPECT_EQ(plan_training(options, 1'000'000, nullptr).lists, 0u);
}

TEST(TrainingPlan, AutoStaysExactUntilAScanGetsSlow) {
  const IndexOptions options = {.kind = Kind::kAuto, .dimension = kDimension};
  EXPECT_EQ(plan_training(options, kExactVectorsMax, nullptr).lists, 0u);
  EXPECT_GT(plan_training(options, kExactVectorsMax + 1, nullptr).lists, 0u);
}

TEST(TrainIndex, TellsItsProgressAndStopsWhenAsked) {
  const IndexOptions options = options_of(Kind::kIvfPq);
  const TrainingPlan plan = plan_training(options, 800, nullptr);
  std::stop_source stop;
  std::vector<uint64_t> steps;
  const TrainingProgress tell = [&](uint64_t done, uint64_t total) {
    steps.push_back(done);
    ASSERT_LE(done, total);
    if (done == 12) stop.request_stop();
  };
  const auto stopped = train_index(options, plan, sample_of(800), tell, stop.get_token());
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_EQ(steps.size(), 12u);
  steps.clear();
  ASSERT_TRUE(train_index(options, plan, sample_of(800), tell, {}).ok());
  EXPECT_GT(steps.size(), 12u);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
}

TEST(TrainIndex, GivesTheSameStateForTheSameSample) {
  for (const Kind kind : {Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8}) {
    EXPECT_EQ(sha256(trained_by(kind)), sha256(trained_by(kind))) << index_kind_name(kind);
  }
}

TEST(TrainedState, IsRefusedIfItIsDamagedOrOfOtherOptions) {
  const IndexOptions options = options_of(Kind::kIvfFlat);
  const std::string good = trained_by(Kind::kIvfFlat);
  ASSERT_TRUE(make_index(options, good).ok());
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    std::string bad = good;
    if (i % 2 == 0) {
      bad.resize(1 + random() % (good.size() - 1));
    } else {
      const size_t at = i < 60 ? random() % 128 : random() % good.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    }
    ASSERT_TRUE(absl::IsInvalidArgument(make_index(options, bad).status())) << "case " << i;
  }
  EXPECT_THAT(std::string(make_index(options_of(Kind::kIvfSq8), good).status().message()),
              HasSubstr("ivf_flat"));
  IndexOptions lists = options;
  lists.ivf_lists = 9;
  EXPECT_THAT(std::string(make_index(lists, good).status().message()), HasSubstr("ivf_lists=9"));
}

TEST(IndexOptions, NameTheOptionThatIsOutOfBounds) {
  const auto error = [](IndexOptions options) {
    options.dimension = 384;
    return std::string(check_index_options(options).message());
  };
  EXPECT_EQ(error({}), "");
  EXPECT_THAT(error({.pq_subvectors = 50}), HasSubstr("pq_subvectors=50"));
  EXPECT_THAT(error({.pq_bits = 9}), HasSubstr("pq_bits=9 is not in 4..8"));
  EXPECT_THAT(error({.refine_factor = 1001}), HasSubstr("refine_factor=1001"));
  EXPECT_THAT(error({.hnsw_m = 1}), HasSubstr("hnsw_m=1"));
  EXPECT_THAT(error({.ef_construction = 0}), HasSubstr("ef_construction=0"));
  EXPECT_THAT(error({.ef_search = 0}), HasSubstr("ef_search=0"));
  EXPECT_THAT(std::string(index_kind_from_name("lsh").status().message()), HasSubstr("index=lsh"));
}

}  // namespace
}  // namespace ragcache::retrieval
