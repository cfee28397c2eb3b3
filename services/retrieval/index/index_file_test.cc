#include "services/retrieval/index/index_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDimension = 8;
constexpr IndexPosition kPosition = {.applied = 12, .floor = 11, .origin = 10};

class IndexFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "index_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/1-2.index";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::vector<float> vector_of(int64_t id) {
    std::mt19937 random(static_cast<uint32_t>(id));
    std::normal_distribution<float> normal;
    std::vector<float> vector(kDimension);
    for (float& x : vector) x = normal(random);
    return vector;
  }

  static IndexOptions options(IndexOptions::Kind kind) {
    return {.kind = kind,
            .dimension = kDimension,
            .ivf_lists = 4,
            .ivf_probes = 4,
            .pq_subvectors = 4,
            .pq_bits = 4};
  }

  static std::unique_ptr<VectorIndex> filled(IndexOptions::Kind kind, int count) {
    VectorModel model;
    for (int64_t id = 1; id <= count; ++id) model.put(id, vector_of(id));
    return model.index(options(kind), model.train(options(kind)));
  }

  void save(const VectorIndex& index, IndexOptions::Kind kind) const {
    ASSERT_TRUE(save_index_file(path_, index, options(kind), identity_, kPosition).ok());
  }

  absl::StatusOr<LoadedIndex> load(IndexOptions::Kind kind, const IndexIdentity& identity) const {
    return load_index_file(path_, options(kind), identity);
  }

  std::string folder_;
  std::string path_;
  const IndexIdentity identity_ = {.store_id = sha256("store"), .embedding_model = sha256("model")};
};

TEST_F(IndexFile, GivesTheSameSearchesAfterLoading) {
  using Kind = IndexOptions::Kind;
  for (const Kind kind : {Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8, Kind::kHnsw}) {
    const auto index = filled(kind, 800);
    ASSERT_EQ(index->remove(std::vector<int64_t>{3, 800, 5}).value(), 3u);
    save(*index, kind);
    const auto loaded = load(kind, identity_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->position, kPosition);
    EXPECT_EQ(loaded->index->kind(), index_kind_name(kind));
    EXPECT_EQ(loaded->index->ids(), index->ids());
    for (int i = 0; i < 8; ++i) {
      std::vector<float> query(kDimension);
      query[static_cast<size_t>(i)] = 1;
      EXPECT_EQ(loaded->index->search(query, 10).value(), index->search(query, 10).value());
    }
  }
}

TEST_F(IndexFile, KeepsAnEmptyIndex) {
  save(*filled(IndexOptions::Kind::kAuto, 0), IndexOptions::Kind::kAuto);
  EXPECT_EQ(load(IndexOptions::Kind::kAuto, identity_).value().index->size(), 0u);
}

TEST_F(IndexFile, NoticesEveryFlippedBitAndEveryCut) {
  save(*filled(IndexOptions::Kind::kIvfFlat, 200), IndexOptions::Kind::kIvfFlat);
  std::ifstream file(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    if (i % 3 == 0) {
      bad.resize(random() % good.size());
    } else {
      // Every byte of the header, then samples of the rest.
      const size_t at = i < 290 ? static_cast<size_t>(i) % 200 : random() % good.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    }
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bad;
    const auto loaded = load(IndexOptions::Kind::kIvfFlat, identity_);
    ASSERT_FALSE(loaded.ok()) << "case " << i;
    ASSERT_THAT(std::string(loaded.status().message()), HasSubstr(path_)) << "case " << i;
  }
}

TEST_F(IndexFile, RefusesTheFileOfAnotherStoreModelOrKind) {
  save(*filled(IndexOptions::Kind::kIvfFlat, 200), IndexOptions::Kind::kIvfFlat);
  IndexIdentity other = identity_;
  other.store_id = sha256("another");
  EXPECT_THAT(std::string(load(IndexOptions::Kind::kAuto, other).status().message()),
              HasSubstr("another document store"));
  other = identity_;
  other.embedding_model = sha256("another");
  EXPECT_THAT(std::string(load(IndexOptions::Kind::kAuto, other).status().message()),
              HasSubstr("another embedding model"));
  other = identity_;
  other.generation = 3;
  EXPECT_THAT(std::string(load(IndexOptions::Kind::kAuto, other).status().message()),
              HasSubstr("another corpus or generation"));
  EXPECT_EQ(load(IndexOptions::Kind::kExact, identity_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(IndexFile, SaysThatThereIsNone) {
  EXPECT_EQ(load(IndexOptions::Kind::kAuto, identity_).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ragcache::retrieval
