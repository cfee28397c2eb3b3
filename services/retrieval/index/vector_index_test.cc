#include "services/retrieval/index/vector_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/growing_index.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kDimension = 24;
constexpr uint64_t kSeed = 20240418;

class VectorIndexTest : public ::testing::Test {
 protected:
  VectorIndexTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  std::vector<float> unit_vector() {
    std::normal_distribution<float> normal;
    std::vector<float> vector(kDimension);
    float norm = 0;
    for (float& x : vector) {
      x = normal(random_);
      norm += x * x;
    }
    for (float& x : vector) x /= std::sqrt(norm);
    return vector;
  }

  // Keeps `model_` beside the index.
  void add(VectorIndex& index, int64_t id, const std::vector<float>& vector) {
    model_[id] = vector;
    ASSERT_TRUE(index.add(std::vector{id}, vector).ok());
  }

  void add_many(VectorIndex& index, int64_t first, int count) {
    std::vector<int64_t> ids;
    std::vector<float> vectors;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> vector = unit_vector();
      model_[first + i] = vector;
      ids.push_back(first + i);
      vectors.insert(vectors.end(), vector.begin(), vector.end());
    }
    ASSERT_TRUE(index.add(ids, vectors).ok());
  }

  void remove(VectorIndex& index, const std::vector<int64_t>& ids) {
    size_t there = 0;
    for (const int64_t id : ids) there += model_.erase(id);
    EXPECT_EQ(index.remove(ids).value(), there);
  }

  // Reads `model_`.
  VectorReader originals() {
    return [this](std::span<const int64_t> ids, const auto& visit) {
      for (const int64_t id : ids) {
        if (const auto found = model_.find(id); found != model_.end()) visit(id, found->second);
      }
      return absl::OkStatus();
    };
  }

  std::vector<int64_t> brute_force(const std::vector<float>& query, size_t k) const {
    std::vector<std::pair<double, int64_t>> scored;
    for (const auto& [id, vector] : model_) {
      double score = 0;
      for (uint32_t i = 0; i < kDimension; ++i) score += double{query[i]} * vector[i];
      scored.push_back({-score, id});
    }
    std::ranges::sort(scored);
    std::vector<int64_t> ids;
    for (size_t i = 0; i < std::min(k, scored.size()); ++i) ids.push_back(scored[i].second);
    return ids;
  }

  static std::vector<int64_t> ids_of(const absl::StatusOr<std::vector<VectorHit>>& hits) {
    EXPECT_TRUE(hits.ok()) << hits.status();
    std::vector<int64_t> ids;
    for (const VectorHit& hit : *hits) ids.push_back(hit.id);
    return ids;
  }

  void expect_like_brute_force(const VectorIndex& index, int queries) {
    for (int i = 0; i < queries; ++i) {
      const std::vector<float> query = unit_vector();
      for (const size_t k : {1, 7, 100}) {
        ASSERT_EQ(ids_of(index.search(query, k)), brute_force(query, k)) << "seed " << kSeed;
      }
    }
  }

  std::mt19937_64 random_{kSeed};
  std::map<int64_t, std::vector<float>> model_;
};

TEST_F(VectorIndexTest, ExactSearchIsBruteForceThroughAddsAndRemoves) {
  const auto index = std::make_unique<FlatIndex>(kDimension);
  EXPECT_THAT(ids_of(index->search(unit_vector(), 3)), IsEmpty());
  for (int round = 0; round < 10; ++round) {
    add_many(*index, 1 + round * 1000, 300);
    std::vector<int64_t> gone = {-5};
    for (const auto& [id, vector] : model_) {
      if (random_() % 4 == 0) gone.push_back(id);
    }
    remove(*index, gone);
    expect_like_brute_force(*index, 5);
  }
  EXPECT_EQ(index->size(), model_.size());
  std::vector<int64_t> ids;
  for (const auto& [id, vector] : model_) ids.push_back(id);
  EXPECT_EQ(index->ids(), ids);
}

TEST_F(VectorIndexTest, InvertedListsThatAreAllProbedGiveTheExactResult) {
  auto index = GrowingIndex::create({.kind = IndexOptions::Kind::kIvfFlat,
                                     .dimension = kDimension,
                                     .ivf_lists = 16,
                                     .ivf_probes = 16},
                                    originals());
  add_many(*index, 1, 16 * kTrainingVectorsPerList - 1);
  ASSERT_TRUE(index->improve().ok());
  EXPECT_EQ(index->kind(), kExactKind) << "too few vectors to train";
  add_many(*index, 10'000, 1);
  ASSERT_TRUE(index->improve().ok());
  EXPECT_EQ(index->kind(), kIvfFlatKind);
  add_many(*index, 20'000, 500);
  remove(*index, {1, 2, 3, 20'000, 99'999});
  expect_like_brute_force(*index, 20);
}

TEST_F(VectorIndexTest, FewProbesFindMostOfClusteredVectors) {
  auto index = GrowingIndex::create({.kind = IndexOptions::Kind::kIvfFlat, .dimension = kDimension},
                                    originals());
  std::vector<std::vector<float>> centres;
  for (int i = 0; i < 40; ++i) centres.push_back(unit_vector());
  std::normal_distribution<float> noise(0, 0.05f);
  for (int64_t id = 1; id <= 4000; ++id) {
    std::vector<float> vector = centres[static_cast<size_t>(id) % centres.size()];
    for (float& x : vector) x += noise(random_);
    add(*index, id, vector);
  }
  ASSERT_TRUE(index->improve().ok());
  ASSERT_EQ(index->kind(), kIvfFlatKind);
  size_t found = 0;
  for (const std::vector<float>& query : centres) {
    const std::vector<int64_t> hits = ids_of(index->search(query, 10));
    for (const int64_t id : brute_force(query, 10)) found += std::ranges::count(hits, id);
  }
  EXPECT_GE(found, 380u) << "of 400, seed " << kSeed;
}

TEST_F(VectorIndexTest, ReturnsEveryTieOfTheLastPlace) {
  const auto index = std::make_unique<FlatIndex>(kDimension);
  const std::vector<float> twin = unit_vector();
  add_many(*index, 100, 50);
  for (const int64_t id : {9, 3, 7, 500}) add(*index, id, twin);
  EXPECT_THAT(ids_of(index->search(twin, 2)), ElementsAre(3, 7, 9, 500));
  EXPECT_THAT(ids_of(index->search(twin, 4)), ElementsAre(3, 7, 9, 500));
  EXPECT_EQ(ids_of(index->search(twin, 5)).size(), 5u);
}

TEST_F(VectorIndexTest, AutoStaysExactUntilAScanGetsSlow) {
  auto index = GrowingIndex::create({.kind = IndexOptions::Kind::kAuto, .dimension = kDimension},
                                    originals());
  add_many(*index, 1, kExactVectorsMax);
  ASSERT_TRUE(index->improve().ok());
  EXPECT_EQ(index->kind(), kExactKind);
  add_many(*index, 1'000'000, 1);
  ASSERT_TRUE(index->improve().ok());
  EXPECT_EQ(index->kind(), kIvfFlatKind);
  EXPECT_EQ(index->size(), kExactVectorsMax + 1);
}

class BusyIndex : public VectorIndexTest, public ::testing::WithParamInterface<std::string> {};

// A vector that was added before a search began and is not removed before it ends is found.
TEST_P(BusyIndex, SearchesWhileOthersAddReplaceRemoveAndBuild) {
  const IndexOptions options = {.kind = index_kind_from_name(GetParam()).value(),
                                .dimension = kDimension,
                                .ivf_lists = 4,
                                .ivf_probes = 4,
                                .pq_subvectors = 12,
                                .pq_bits = 4};
  std::mutex model_mutex;
  const auto index =
      GrowingIndex::create(options, [&](std::span<const int64_t> ids, const auto& visit) {
        const std::lock_guard lock(model_mutex);
        return originals()(ids, visit);
      });
  add_many(*index, 1, 700);
  std::vector<std::vector<float>> queries;
  for (int64_t id = 1; id <= 20; ++id) queries.push_back(model_[id]);
  std::atomic<bool> done = false;
  std::atomic<int> searches = 0;
  std::atomic<int> builds = 0;
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
  threads.emplace_back([&] {
    while (!done) {
      const std::string trained = index->trained_state();
      const absl::Status built =
          trained.empty() ? index->improve().status() : index->adopt_trained(trained);
      // A vector may be gone from the model and not yet from the index.
      ASSERT_TRUE(built.ok() || absl::IsAborted(built)) << built;
      builds += built.ok();
    }
  });
  for (int round = 0; round < 40 || builds < 2; ++round) {
    const int64_t first = 1000 + round * 100;
    const auto change = [&](int64_t id, bool remove) {
      const std::vector<float> vector = unit_vector();
      if (remove) {
        ASSERT_EQ(index->remove(std::vector{id}).value(), 1u);
      }
      {
        const std::lock_guard lock(model_mutex);
        model_[id] = vector;
      }
      ASSERT_TRUE(index->add(std::vector{id}, vector).ok());
    };
    for (int64_t id = first; id < first + 30; ++id) change(id, false);
    for (int64_t id = first; id < first + 10; ++id) change(id, true);
    std::vector<int64_t> gone;
    for (int64_t id = first; id < first + 20; ++id) gone.push_back(id);
    ASSERT_EQ(index->remove(gone).value(), gone.size());
    const std::lock_guard lock(model_mutex);
    for (const int64_t id : gone) model_.erase(id);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  std::vector<int64_t> ids;
  for (const auto& [id, vector] : model_) ids.push_back(id);
  EXPECT_EQ(index->ids(), ids);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BusyIndex,
                         ::testing::Values("exact", "ivf_flat", "ivf_pq", "ivf_sq8", "hnsw"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ragcache::retrieval
