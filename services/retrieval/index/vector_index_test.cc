#include "services/retrieval/index/vector_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 24;
constexpr uint64_t kSeed = 20240418;
constexpr std::array kKinds = {Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8,
                               Kind::kHnsw};

// Whatever is lost is lost by the codes: all lists are probed.
IndexOptions options_of(Kind kind) {
  return {.kind = kind,
          .dimension = kDimension,
          .ivf_lists = 8,
          .ivf_probes = 8,
          .pq_subvectors = 12,
          .pq_bits = 4};
}

class OnlyThese : public IdFilter {
 public:
  explicit OnlyThese(std::set<int64_t> ids) : ids_(std::move(ids)) {}
  bool allows(int64_t id) const override { return ids_.contains(id); }

 private:
  const std::set<int64_t> ids_;
};

class VectorIndexTest : public ::testing::Test {
 protected:
  VectorIndexTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  void put(int64_t first, int count) {
    for (int64_t id = first; id < first + count; ++id) model_.put(id, vectors_.next());
  }

  std::unique_ptr<VectorIndex> make(Kind kind) const {
    return model_.index(options_of(kind), model_.train(options_of(kind)));
  }

  // Those below keep `model_` beside the index.
  void add(VectorIndex& index, int64_t first, int count) {
    std::vector<int64_t> ids;
    std::vector<float> rows;
    put(first, count);
    for (int64_t id = first; id < first + count; ++id) {
      ids.push_back(id);
      rows.insert(rows.end(), model_.at(id).begin(), model_.at(id).end());
    }
    ASSERT_TRUE(index.add(ids, rows).ok());
  }

  void remove(VectorIndex& index, const std::vector<int64_t>& ids) {
    size_t there = 0;
    for (const int64_t id : ids) there += model_.erase(id);
    EXPECT_EQ(index.remove(ids).value(), there);
  }

  static std::vector<int64_t> ids_of(const absl::StatusOr<std::vector<VectorHit>>& hits) {
    EXPECT_TRUE(hits.ok()) << hits.status();
    std::vector<int64_t> ids;
    for (const VectorHit& hit : *hits) ids.push_back(hit.id);
    return ids;
  }

  void expect_like_brute_force(const VectorIndex& index, int queries) {
    for (int i = 0; i < queries; ++i) {
      const std::vector<float> query = vectors_.next();
      for (const size_t k : {1, 7, 100}) {
        ASSERT_EQ(ids_of(index.search(query, k)), model_.search(query, k)) << "seed " << kSeed;
      }
    }
  }

  // How many of the ten best are found, over so many queries.
  size_t found_of_best(const VectorIndex& index, ClusteredVectors& queries, int count) const {
    size_t found = 0;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> query = queries.next();
      const std::vector<int64_t> hits = ids_of(index.search(query, 10));
      EXPECT_EQ(hits.size(), 10u);
      for (const int64_t id : model_.search(query, 10)) found += std::ranges::count(hits, id);
    }
    return found;
  }

  ClusteredVectors vectors_{kDimension, 40, 0.8f, kSeed};
  VectorModel model_;
};

TEST_F(VectorIndexTest, ExactSearchIsBruteForceThroughAddsAndRemoves) {
  const auto index = make(Kind::kExact);
  EXPECT_THAT(ids_of(index->search(vectors_.next(), 3)), IsEmpty());
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 10; ++round) {
    add(*index, 1 + round * 1000, 300);
    std::vector<int64_t> gone = {-5};
    for (const int64_t id : model_.ids()) {
      if (random() % 4 == 0) gone.push_back(id);
    }
    remove(*index, gone);
    expect_like_brute_force(*index, 5);
  }
  EXPECT_EQ(index->size(), model_.size());
  EXPECT_EQ(index->ids(), model_.ids());
}

TEST_F(VectorIndexTest, InvertedListsThatAreAllProbedGiveTheExactResult) {
  put(1, 700);
  const auto index = make(Kind::kIvfFlat);
  EXPECT_EQ(index->kind(), kIvfFlatKind);
  add(*index, 20'000, 500);
  remove(*index, {1, 2, 3, 20'000, 99'999});
  expect_like_brute_force(*index, 20);
}

TEST_F(VectorIndexTest, FewProbesFindMostOfClusteredVectors) {
  ClusteredVectors vectors(kDimension, 40, 0.25f, kSeed);
  for (int64_t id = 1; id <= 4000; ++id) model_.put(id, vectors.next());
  const IndexOptions options = {.kind = Kind::kIvfFlat, .dimension = kDimension};
  const auto index = model_.index(options, model_.train(options));
  ASSERT_EQ(index->kind(), kIvfFlatKind);
  EXPECT_GE(found_of_best(*index, vectors, 40), 380u) << "of 400, seed " << kSeed;
}

TEST_F(VectorIndexTest, ReturnsEveryTieOfTheLastPlace) {
  put(100, 50);
  const std::vector<float> twin = vectors_.next();
  for (const int64_t id : {9, 3, 7, 500}) model_.put(id, twin);
  const auto index = make(Kind::kExact);
  EXPECT_THAT(ids_of(index->search(twin, 2)), ElementsAre(3, 7, 9, 500));
  EXPECT_THAT(ids_of(index->search(twin, 4)), ElementsAre(3, 7, 9, 500));
  EXPECT_EQ(ids_of(index->search(twin, 5)).size(), 5u);
}

TEST_F(VectorIndexTest, FindsAllThatAFilterAllowsHoweverFew) {
  put(1, 2000);
  const OnlyThese few({17, 600, 1999, 5555}), none({});
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(index_kind_name(kind));
    const auto index = make(kind);
    EXPECT_THAT(ids_of(index->search(vectors_.next(), 10, &few)),
                UnorderedElementsAre(17, 600, 1999));
    EXPECT_THAT(ids_of(index->search(model_.at(600), 1, &few)), ElementsAre(600));
    EXPECT_THAT(ids_of(index->search(vectors_.next(), 10, &none)), IsEmpty());
    EXPECT_EQ(index->search(vectors_.next(), 5000)->size(), 2000u);
  }
}

TEST_F(VectorIndexTest, PassesOverTombstonesUntilAGraphIsBuiltAnew) {
  put(1, 2000);
  const auto index = make(Kind::kHnsw);
  EXPECT_FALSE(index->needs_compaction());
  std::vector<int64_t> gone(1500);
  std::iota(gone.begin(), gone.end(), 1);
  remove(*index, gone);
  EXPECT_TRUE(index->needs_compaction());
  EXPECT_EQ(index->ids(), model_.ids());
  EXPECT_GE(found_of_best(*index, vectors_, 50), 490u) << "of 500";
  const auto anew = make(Kind::kHnsw);
  EXPECT_FALSE(anew->needs_compaction());
  EXPECT_LT(anew->memory_bytes(), index->memory_bytes() / 2);
}

class BusyIndex : public VectorIndexTest, public ::testing::WithParamInterface<Kind> {};

// A vector that was added before a search began and is not removed before it ends is found.
TEST_P(BusyIndex, SearchesWhileOthersAddReplaceAndRemove) {
  put(1, 700);
  const auto index = make(GetParam());
  ASSERT_EQ(index->kind(), index_kind_name(GetParam()));
  std::vector<std::vector<float>> queries;
  for (int64_t id = 1; id <= 20; ++id) queries.push_back(model_.at(id));
  std::atomic<bool> done = false;
  std::atomic<int> searches = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; !done || searches < 100; ++i) {
        const size_t which = i % queries.size();
        const auto hits = index->search(queries[which], 1);
        ASSERT_TRUE(hits.ok());
        ASSERT_EQ(hits->front().id, static_cast<int64_t>(which) + 1);
        ++searches;
      }
    });
  }
  for (int round = 0; round < 40 || searches < 100; ++round) {
    const int64_t first = 1000 + round * 100;
    add(*index, first, 30);
    for (int64_t id = first; id < first + 10; ++id) {
      remove(*index, {id});
      add(*index, id, 1);
    }
    for (int64_t id = first; id < first + 20; ++id) remove(*index, {id});
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(index->ids(), model_.ids());
}

INSTANTIATE_TEST_SUITE_P(Kinds, BusyIndex, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(index_kind_name(info.param)); });

}  // namespace
}  // namespace ragcache::retrieval
