// One index over all vectors beside indexes over parts of them that share its trained state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/retrieval/index/growing_index.h"
#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 48;
constexpr int64_t kVectors = 6000;
constexpr int kQueries = 2000;
constexpr uint64_t kSeed = 11;

size_t shard_of(int64_t id, size_t shards) {
  return (static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u >> 32) % shards;
}

class EveryThird : public IdFilter {
 public:
  bool allows(int64_t id) const override { return id % 3 == 0; }
};

class ShardedIndex : public ::testing::TestWithParam<std::string> {
 protected:
  static IndexOptions options() {
    return {.kind = index_kind_from_name(GetParam()).value(),
            .dimension = kDimension,
            .ivf_lists = 32,
            .ivf_probes = 5,
            .pq_subvectors = 8,
            .pq_bits = 6};
  }

  void fill(GrowingIndex& index, size_t shard, size_t shards) const {
    std::vector<int64_t> ids;
    std::vector<float> vectors;
    size_t batch = 1 + shard;
    const auto flush = [&] {
      ASSERT_TRUE(index.add(ids, vectors).ok());
      ids.clear();
      vectors.clear();
      batch = batch * 3 % 101;  // how vectors came together must not matter
    };
    for (const int64_t id : model_.ids()) {
      if (shard_of(id, shards) != shard) continue;
      ids.push_back(id);
      vectors.insert(vectors.end(), model_.at(id).begin(), model_.at(id).end());
      if (ids.size() == batch) flush();
    }
    flush();
  }

  ClusteredVectors vectors_{kDimension, 40, 0.7f, kSeed};
  VectorModel model_;
};

TEST_P(ShardedIndex, GivesTheResultOfOneIndexOverAll) {
  for (int64_t id = 1; id <= kVectors; ++id) {
    // Texts that occur in several documents score alike and lie in different shards.
    model_.put(id, id % 50 == 0 ? model_.at(id / 50) : vectors_.next());
  }
  const auto whole = GrowingIndex::create(options(), model_.reader());
  fill(*whole, 0, 1);
  ASSERT_TRUE(whole->improve().ok());
  EXPECT_EQ(whole->kind(), GetParam());
  for (const size_t n_shards : {2, 3}) {
    SCOPED_TRACE(testing::Message() << n_shards << " shards, seed " << kSeed);
    std::vector<std::unique_ptr<GrowingIndex>> shards;
    for (size_t shard = 0; shard < n_shards; ++shard) {
      shards.push_back(GrowingIndex::create(options(), model_.reader()));
      // Half of them learn of the training before they have vectors.
      const bool early = shard % 2 == 1;
      if (!early) fill(*shards.back(), shard, n_shards);
      if (const std::string trained = whole->trained_state(); !trained.empty()) {
        ASSERT_TRUE(shards.back()->adopt_trained(trained).ok());
      }
      if (early) fill(*shards.back(), shard, n_shards);
    }
    const EveryThird third;
    for (int i = 0; i < kQueries; ++i) {
      const std::vector<float> query = vectors_.next();
      const size_t k = std::array{1, 5, 10, 100}[static_cast<size_t>(i) % 4];
      const IdFilter* filter = i % 5 == 0 ? &third : nullptr;
      Candidates together;
      for (const auto& shard : shards) {
        const Candidates part = shard->candidates(query, k, filter).value();
        together.limit = std::max(together.limit, part.limit);
        together.hits.insert(together.hits.end(), part.hits.begin(), part.hits.end());
      }
      ASSERT_EQ(best_hits(std::move(together), k), whole->search(query, k, filter).value())
          << "query " << i << ", k " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedIndex,
                         ::testing::Values("exact", "ivf_flat", "ivf_pq", "ivf_sq8"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ragcache::retrieval
