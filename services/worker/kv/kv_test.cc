#include <cstring>
#include <set>

#include "gtest/gtest.h"
#include "services/worker/kv/block_pool.h"
#include "services/worker/kv/segment_table.h"

namespace ragcache::worker {
namespace {

constexpr kernels::KvLayout kLayout{2, 1, 16};

TEST(BlockPool, GivesEachBlockToOneOwnerAndTheWholeMemory) {
  auto pool = BlockPool::create(kLayout, 5);
  ASSERT_TRUE(pool.ok()) << pool.status();
  std::set<int32_t> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pool->take());
  EXPECT_EQ(taken, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool->free(), 0u);
  std::memset(pool->memory(), 1, 5 * static_cast<size_t>(kLayout.block_bytes()));
  pool->give_back({3, 1});
  EXPECT_EQ(pool->free(), 2u);
  EXPECT_EQ(pool->take(), 3);
  EXPECT_DEATH(pool->give_back(1), "broken invariant");
}

TEST(BlockPool, RefusesSizesItCannotNumber) {
  EXPECT_EQ(BlockPool::create(kLayout, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockPool::create(kLayout, 1u << 31).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SegmentTable, CountsBlocksAndPinsAndListsParentsFirst) {
  SegmentTable table;
  const std::vector<uint32_t> tokens{1, 2, 3};
  const Digest digest = digest_of_tokens(tokens);
  const SegmentId root = SegmentId::root(Digest{}, "scope");
  std::vector<SegmentId> ids;
  SegmentId parent = root;
  for (uint32_t i = 0; i < 4; ++i) parent = ids.emplace_back(SegmentId::derive(parent, digest));
  for (uint32_t i : {2u, 0u, 3u, 1u}) {
    table.insert({.id = ids[i],
                  .parent = i == 0 ? std::nullopt : std::optional(ids[i - 1]),
                  .depth = i,
                  .token_count = 3,
                  .token_digest = digest,
                  .blocks = std::vector<int32_t>(i + 1, 0)});
  }
  EXPECT_EQ(table.blocks(), 10u);
  const auto order = table.in_chain_order();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(order[i]->id, ids[i]);

  Segment* segment = table.find(ids[3]);
  ASSERT_NE(segment, nullptr);
  EXPECT_TRUE(segment->holds(tokens, digest));
  EXPECT_FALSE(segment->holds(std::vector<uint32_t>{1, 2}, digest));
  EXPECT_FALSE(segment->holds(tokens, Digest{}));
  table.pin(*segment);
  table.pin(*segment);
  table.unpin(*segment);
  EXPECT_EQ(table.pinned(), 1u);
  EXPECT_DEATH(table.erase(ids[3]), "broken invariant");
  table.unpin(*segment);
  EXPECT_EQ(table.pinned(), 0u);
  EXPECT_EQ(table.erase(ids[3]).size(), 4u);
  EXPECT_EQ(table.find(ids[3]), nullptr);
  EXPECT_EQ(table.blocks(), 6u);
}

}  // namespace
}  // namespace ragcache::worker
