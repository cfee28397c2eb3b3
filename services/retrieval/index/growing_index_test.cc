#include "services/retrieval/index/growing_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 24;

class OnlyThese : public IdFilter {
 public:
  explicit OnlyThese(std::set<int64_t> ids) : ids_(std::move(ids)) {}
  bool allows(int64_t id) const override { return ids_.contains(id); }

 private:
  const std::set<int64_t> ids_;
};

class GrowingIndexTest : public ::testing::Test {
 protected:
  static IndexOptions options(Kind kind) {
    return {.kind = kind,
            .dimension = kDimension,
            .ivf_lists = 8,
            .ivf_probes = 8,
            .pq_subvectors = 6,
            .pq_bits = 4};
  }

  void add(GrowingIndex& index, int64_t first, int count) {
    for (int64_t id = first; id < first + count; ++id) {
      model_.put(id, vectors_.next());
      ASSERT_TRUE(index.add(std::vector{id}, model_.at(id)).ok());
    }
  }

  static std::vector<int64_t> ids_of(const absl::StatusOr<std::vector<VectorHit>>& hits) {
    EXPECT_TRUE(hits.ok()) << hits.status();
    std::vector<int64_t> ids;
    for (const VectorHit& hit : *hits) ids.push_back(hit.id);
    return ids;
  }

  ClusteredVectors vectors_{kDimension, 10, 0.8f, 7};
  VectorModel model_;
};

TEST_F(GrowingIndexTest, KeepsWhatChangesWhileItIsBuilt) {
  GrowingIndex* index = nullptr;
  bool is_building = false;
  // Changes happen in the middle of a build: while it reads.
  const VectorReader reader = [&](std::span<const int64_t> ids, const auto& visit) {
    const absl::Status read = model_.reader()(ids, visit);
    if (!std::exchange(is_building, false)) return read;
    add(*index, 9000, 2);
    EXPECT_EQ(index->remove(std::vector<int64_t>{9001}).value(), 1u);
    model_.erase(9001);
    EXPECT_EQ(index->remove(std::vector<int64_t>{1, 2, 500}).value(), 3u);
    model_.erase(1);
    model_.erase(500);
    add(*index, 2, 1);
    return read;
  };
  for (const Kind kind : {Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto owner = GrowingIndex::create(options(kind), reader);
    index = owner.get();
    add(*index, 1, 800);
    is_building = true;
    ASSERT_TRUE(index->improve().value());
    EXPECT_NE(index->kind(), kExactKind);
    EXPECT_EQ(index->ids(), model_.ids());
    EXPECT_THAT(ids_of(index->search(model_.at(2), 1)), ElementsAre(2)) << "the new vector of 2";
    for (const int64_t id : model_.ids()) model_.erase(id);
  }
}

TEST_F(GrowingIndexTest, TellsItsProgressAndStopsWhenAsked) {
  const auto index = GrowingIndex::create(options(Kind::kIvfPq), model_.reader());
  add(*index, 1, 800);
  std::stop_source stop;
  const auto stopped = index->improve(
      [&](std::string_view, uint64_t done, uint64_t) {
        if (done == 12) stop.request_stop();
      },
      stop.get_token());
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_EQ(index->kind(), kExactKind);
  EXPECT_THAT(ids_of(index->search(model_.at(5), 1)), ElementsAre(5));

  std::map<std::string, std::vector<uint64_t>> steps;
  uint64_t total = 0;
  const auto told = index->improve([&](std::string_view stage, uint64_t done, uint64_t of) {
    steps[std::string(stage)].push_back(done);
    total = of;
    ASSERT_LE(done, of);
  });
  ASSERT_TRUE(told.ok()) << told.status();
  ASSERT_THAT(steps, ::testing::SizeIs(2));
  for (const auto& [stage, done] : steps) EXPECT_TRUE(std::ranges::is_sorted(done)) << stage;
  EXPECT_EQ(steps["add"].back(), 800u);
  EXPECT_EQ(total, 800u);
}

TEST_F(GrowingIndexTest, StaysAsItIsWhenAVectorCannotBeReadAnew) {
  const auto index = GrowingIndex::create(options(Kind::kIvfFlat), model_.reader());
  add(*index, 1, 400);
  const std::vector<float> vector = model_.at(17);
  model_.erase(17);
  EXPECT_TRUE(absl::IsAborted(index->improve().status()));
  EXPECT_EQ(index->kind(), kExactKind);
  EXPECT_THAT(ids_of(index->search(vector, 1)), ElementsAre(17));
  model_.put(17, vector);
  EXPECT_TRUE(index->improve().value());
  EXPECT_EQ(index->size(), 400u);
}

TEST_F(GrowingIndexTest, RefusesATrainedStateThatIsDamagedOrForeign) {
  const auto index = GrowingIndex::create(options(Kind::kIvfFlat), model_.reader());
  add(*index, 1, 400);
  ASSERT_TRUE(index->improve().ok());
  const std::string good = index->trained_state();
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    std::string bad = good;
    if (i % 2 == 0) {
      bad.resize(random() % good.size());
    } else {
      const size_t at = i < 60 ? random() % 128 : random() % good.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    }
    ASSERT_TRUE(absl::IsInvalidArgument(index->adopt_trained(bad))) << "case " << i;
  }
  EXPECT_EQ(index->trained_state(), good);
  const auto other = GrowingIndex::create(options(Kind::kIvfSq8), model_.reader());
  EXPECT_THAT(std::string(other->adopt_trained(good).message()), HasSubstr("ivf_flat"));
  IndexOptions lists = options(Kind::kIvfFlat);
  lists.ivf_lists = 9;
  EXPECT_THAT(
      std::string(GrowingIndex::create(lists, model_.reader())->adopt_trained(good).message()),
      HasSubstr("ivf_lists=9"));
}

TEST_F(GrowingIndexTest, FindsAllThatAFilterAllowsHoweverFew) {
  for (const Kind kind : {Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8, Kind::kHnsw}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto index = GrowingIndex::create(options(kind), model_.reader());
    add(*index, 1, 2000);
    ASSERT_TRUE(index->improve().ok());
    const OnlyThese few({17, 600, 1999, 5555});
    EXPECT_THAT(ids_of(index->search(vectors_.next(), 10, &few)),
                UnorderedElementsAre(17, 600, 1999));
    EXPECT_THAT(ids_of(index->search(model_.at(600), 1, &few)), ElementsAre(600));
    EXPECT_THAT(ids_of(index->search(vectors_.next(), 10,
                                     std::make_unique<OnlyThese>(std::set<int64_t>{}).get())),
                ::testing::IsEmpty());
    EXPECT_EQ(index->search(vectors_.next(), 5000)->size(), 2000u);
    for (const int64_t id : model_.ids()) model_.erase(id);
  }
}

TEST_F(GrowingIndexTest, PassesOverHnswTombstonesUntilTheyAreCompacted) {
  const auto index = GrowingIndex::create(options(Kind::kHnsw), model_.reader());
  add(*index, 1, 2000);
  EXPECT_FALSE(index->compact().value());
  const size_t full = index->memory_bytes();
  for (int64_t id = 1; id <= 1500; ++id) {
    ASSERT_EQ(index->remove(std::vector{id}).value(), 1u);
    model_.erase(id);
  }
  const auto expect_best = [&] {
    size_t found = 0;
    for (int i = 0; i < 50; ++i) {
      const std::vector<float> query = vectors_.next();
      const std::vector<int64_t> hits = ids_of(index->search(query, 10));
      ASSERT_EQ(hits.size(), 10u);
      for (const int64_t id : model_.search(query, 10)) found += std::ranges::count(hits, id);
    }
    EXPECT_GE(found, 490u) << "of 500";
  };
  expect_best();
  EXPECT_TRUE(index->compact().value());
  EXPECT_FALSE(index->compact().value());
  EXPECT_EQ(index->ids(), model_.ids());
  EXPECT_LT(index->memory_bytes(), full / 2);
  expect_best();
}

TEST(IndexOptionsTest, NamesTheOptionThatIsOutOfBounds) {
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

TEST(TrainingPlanTest, WaitsForVectorsAndForGrowth) {
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

}  // namespace
}  // namespace ragcache::retrieval
