#include "services/retrieval/router/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/make_index.h"
#include "services/retrieval/index/trained_state.h"

namespace ragcache::retrieval {
namespace {

using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 16;
constexpr int64_t kVectors = 4000;
constexpr uint64_t kSeed = 77;

// Vectors around a few centres, some of them twice: ties.
std::vector<float> clustered_vectors() {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> centres(20 * kDimension);
  for (float& x : centres) x = normal(random);
  std::vector<float> vectors;
  for (int64_t i = 0; i < kVectors; ++i) {
    std::vector<float> vector(kDimension);
    const size_t centre = random() % 20;
    float norm = 0;
    for (uint32_t j = 0; j < kDimension; ++j) {
      vector[j] = centres[centre * kDimension + j] + 0.5f * normal(random);
      norm += vector[j] * vector[j];
    }
    for (float& x : vector) x /= std::sqrt(norm);
    if (i > 0 && i % 10 == 0) vector.assign(vectors.end() - kDimension, vectors.end());
    vectors.insert(vectors.end(), vector.begin(), vector.end());
  }
  return vectors;
}

class EveryThird : public IdFilter {
 public:
  bool allows(int64_t id) const override { return id % 3 == 0; }
};

class MergeTest : public ::testing::TestWithParam<Kind> {
 protected:
  // Those of `vectors` that are of the part, in batches that grow: how vectors came together must
  // not matter.
  std::unique_ptr<VectorIndex> make(const std::string& trained, std::span<const float> vectors,
                                    size_t part, size_t parts) const {
    auto index = make_index(options_, trained).value();
    std::vector<int64_t> ids;
    std::vector<float> rows;
    size_t batch = 1 + part;
    const auto flush = [&] {
      ASSERT_TRUE(index->add(ids, rows).ok());
      ids.clear();
      rows.clear();
      batch = batch * 3 % 101;
    };
    for (int64_t id = 0; id < kVectors; ++id) {
      if (static_cast<size_t>(id * 7919) % parts != part) continue;
      const auto row = vectors.subspan(static_cast<size_t>(id) * kDimension, kDimension);
      ids.push_back(id);
      rows.insert(rows.end(), row.begin(), row.end());
      if (ids.size() == batch) flush();
    }
    flush();
    return index;
  }

  const IndexOptions options_ = {
      .kind = GetParam(), .dimension = kDimension, .ivf_lists = 40, .ivf_probes = 4, .pq_bits = 4};
};

TEST_P(MergeTest, GivesWhatOneIndexGives) {
  const std::vector<float> vectors = clustered_vectors();
  const auto vector = [&](int64_t id) {
    return std::span(vectors).subspan(static_cast<size_t>(id) * kDimension, kDimension);
  };
  std::string trained;
  if (const TrainingPlan plan = plan_training(options_, kVectors, nullptr); plan.lists > 0) {
    trained = train_index(options_, plan, vectors, {}, {}).value();
  }
  FlatIndex oracle(kDimension);
  for (int64_t id = 0; id < kVectors; ++id) {
    ASSERT_TRUE(oracle.add(std::span(&id, 1), vector(id)).ok());
  }
  const auto one = make(trained, vectors, 0, 1);
  const EveryThird third;
  std::mt19937_64 random(kSeed);
  for (const size_t shards : {1, 2, 3, 200}) {
    std::vector<std::unique_ptr<VectorIndex>> parts;
    for (size_t shard = 0; shard < shards; ++shard) {
      parts.push_back(make(trained, vectors, shard, shards));
    }
    size_t found_by_one = 0, found_by_parts = 0;
    for (int query = 0; query < 60; ++query) {
      const auto question = vector(static_cast<int64_t>(random() % kVectors));
      const size_t k = std::vector<size_t>{1, 2, 10, 100}[random() % 4];
      const IdFilter* filter = query % 5 == 0 ? &third : nullptr;
      std::vector<Candidates> candidates;
      for (const auto& part : parts) {
        candidates.push_back(part->candidates(question, k, filter).value());
      }
      const std::vector<VectorHit> merged = merge(std::move(candidates), k, options_);
      const std::vector<VectorHit> expected = one->search(question, k, filter).value();
      if (options_.kind != Kind::kHnsw) {
        ASSERT_EQ(merged, expected)
            << "seed " << kSeed << ", query " << query << ", k " << k << ", shards " << shards;
        continue;
      }
      std::set<int64_t> best;
      for (const VectorHit& hit : oracle.search(question, k, filter).value()) best.insert(hit.id);
      for (const VectorHit& hit : expected) found_by_one += best.contains(hit.id);
      for (const VectorHit& hit : merged) found_by_parts += best.contains(hit.id);
    }
    EXPECT_GE(found_by_parts, found_by_one) << shards << " shards";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MergeTest,
                         ::testing::Values(Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq,
                                           Kind::kIvfSq8, Kind::kHnsw));

}  // namespace
}  // namespace ragcache::retrieval
