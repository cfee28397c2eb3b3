// Random sequences of everything that can be done to an index, of every kind, beside a plain model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "services/retrieval/index/index_file.h"
#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 32;
constexpr size_t kBest = 10;

// Allows ids with a remainder below `share` of 100.
class ShareFilter : public IdFilter {
 public:
  explicit ShareFilter(int64_t share) : share_(share) {}
  bool allows(int64_t id) const override { return id * 7919 % 100 < share_; }

 private:
  const int64_t share_;
};

struct Promise {
  const char* name;
  IndexOptions options;
  double score_error;  // of a hit against the inner product with the whole vector
  double recall;       // of the ten best, over all searches of a sequence
  bool finds_all;      // never fewer hits than there are, up to k
};

// Half of the lists are probed, so that what is lost is what the codes lose, and a little.
Promise promises(Kind kind) {
  IndexOptions options = {.kind = kind,
                          .dimension = kDimension,
                          .ivf_lists = 8,
                          .ivf_probes = 4,
                          .pq_subvectors = 8,
                          .pq_bits = 5,
                          .hnsw_m = 12};
  switch (kind) {
    case Kind::kIvfFlat:
      return {"ivf_flat", options, 1e-5, 0.9, false};
    case Kind::kIvfPq:
      return {"ivf_pq", options, 1e-3, 0.8, false};
    case Kind::kIvfSq8:
      return {"ivf_sq8", options, 2e-2, 0.85, false};
    case Kind::kHnsw:
      return {"hnsw", options, 1e-5, 0.97, true};
    default:
      return {"exact", options, 1e-5, 1, true};
  }
}

class Sequence {
 public:
  Sequence(const Promise& promise, uint64_t seed)
      : promise_(promise),
        random_(seed),
        vectors_(kDimension, 24, 0.6f, seed),
        path_(::testing::TempDir() + "property_" + std::to_string(getpid()) + ".index"),
        index_(make_index(promise.options, "").value()) {}
  ~Sequence() { std::filesystem::remove(path_); }

  void step() {
    switch (random_() % 16) {
      case 0:
      case 1:
        return rebuild();
      case 2:
        return save_and_load();
      case 3:
      case 4:
      case 5:
        return add(1 + random_() % 60);
      case 6:
      case 7:
        return replace();
      case 8:
      case 9:
        return remove(random_() % 40);
      default:
        return search();
    }
  }

  void add(size_t count) {
    std::vector<int64_t> ids;
    std::vector<float> vectors;
    for (size_t i = 0; i < count; ++i) {
      // Some texts occur twice.
      const std::vector<float> vector =
          random_() % 20 == 0 && model_.size() > 0 ? model_.at(any_id()) : vectors_.next();
      ids.push_back(next_id_);
      vectors.insert(vectors.end(), vector.begin(), vector.end());
      model_.put(next_id_++, vector);
    }
    ASSERT_TRUE(index_->add(ids, vectors).ok());
  }

  void check_recall() const {
    if (wanted_ == 0) return;
    EXPECT_GE(static_cast<double>(found_) / static_cast<double>(wanted_), promise_.recall);
  }

 private:
  int64_t any_id() {
    const std::vector<int64_t> ids = model_.ids();
    return ids[random_() % ids.size()];
  }

  // As the router does it: beside the index in use, trained once there are enough.
  void rebuild() {
    if (trained_.empty()) trained_ = model_.train(promise_.options);
    index_ = model_.index(promise_.options, trained_);
  }

  void save_and_load() {
    const IndexIdentity identity = {.store_id = sha256("store")};
    ASSERT_TRUE(save_index_file(path_, *index_, promise_.options, identity, {}).ok());
    auto loaded = load_index_file(path_, promise_.options, identity);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->index->kind(), index_->kind());
    index_ = std::move(loaded->index);
  }

  void replace() {
    if (model_.size() == 0) return;
    const int64_t id = any_id();
    const std::vector<float> vector = vectors_.next();
    ASSERT_EQ(index_->remove(std::vector{id}).value(), 1u);
    ASSERT_TRUE(index_->add(std::vector{id}, vector).ok());
    model_.put(id, vector);
  }

  void remove(size_t count) {
    std::vector<int64_t> ids = {next_id_ + 5};
    size_t there = 0;
    for (size_t i = 0; i < count && model_.size() > 0; ++i) {
      ids.push_back(any_id());
      there += model_.erase(ids.back());
    }
    ASSERT_EQ(index_->remove(ids).value(), there);
  }

  void search() {
    ASSERT_EQ(index_->ids(), model_.ids());
    const ShareFilter share(static_cast<int64_t>(std::array{100, 60, 20, 2}[random_() % 4]));
    const IdFilter* filter = random_() % 3 == 0 ? &share : nullptr;
    const std::vector<float> query = vectors_.next();
    const auto hits = index_->search(query, kBest, filter);
    ASSERT_TRUE(hits.ok()) << hits.status();
    std::set<int64_t> ids;
    for (const VectorHit& hit : *hits) {
      ASSERT_TRUE(model_.contains(hit.id)) << hit.id;
      ASSERT_TRUE(filter == nullptr || filter->allows(hit.id)) << hit.id;
      ASSERT_TRUE(ids.insert(hit.id).second) << hit.id << " twice";
      ASSERT_NEAR(hit.score, model_.score(query, hit.id), promise_.score_error);
    }
    ASSERT_TRUE(std::ranges::is_sorted(*hits, [](const VectorHit& a, const VectorHit& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    }));
    const std::vector<int64_t> best = model_.search(query, kBest, filter);
    if (promise_.finds_all) {
      ASSERT_GE(hits->size(), best.size());
    }
    for (const int64_t id : best) found_ += ids.contains(id);
    wanted_ += best.size();
  }

  const Promise& promise_;
  std::mt19937_64 random_;
  ClusteredVectors vectors_;
  VectorModel model_;
  const std::string path_;
  std::string trained_;
  std::shared_ptr<VectorIndex> index_;
  int64_t next_id_ = 1;
  size_t found_ = 0;
  size_t wanted_ = 0;
};

class IndexProperty : public ::testing::TestWithParam<Kind> {};

TEST_P(IndexProperty, HoldsWhatItPromisesThroughEverySequence) {
  const Promise promise = promises(GetParam());
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << promise.name << ", seed " << seed);
    Sequence sequence(promise, seed);
    // Some begin empty, some with vectors enough to train.
    if (seed % 2 == 0) sequence.add(1500);
    for (int i = 0; i < 300 && !HasFatalFailure(); ++i) sequence.step();
    sequence.check_recall();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, IndexProperty,
                         ::testing::Values(Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq,
                                           Kind::kIvfSq8, Kind::kHnsw),
                         [](const auto& info) { return std::string(promises(info.param).name); });

}  // namespace
}  // namespace ragcache::retrieval
