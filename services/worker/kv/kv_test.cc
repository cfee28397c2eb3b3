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

TEST(SegmentTable, CountsBothTiersAndPinsAndListsParentsFirst) {
  SegmentTable table;
  const std::vector<uint32_t> tokens{1, 2, 3};
  const Digest digest = digest_of_tokens(tokens);
  const SegmentId root = SegmentId::root(Digest{}, "scope");
  std::vector<SegmentKey> keys;
  for (uint32_t i = 0; i < 4; ++i) {
    const SegmentId parent = i == 0 ? root : keys[i - 1].id;
    keys.push_back({.id = SegmentId::derive(parent, digest),
                    .parent = i == 0 ? std::nullopt : std::optional(parent),
                    .depth = i,
                    .token_count = 3,
                    .token_digest = digest});
  }
  for (uint32_t i : {2u, 0u, 3u, 1u}) {
    table.add_to_device(keys[i], std::vector<int32_t>(i + 1, 0));
    if (i % 2 == 0) table.add_to_host(keys[i], {.blocks = std::vector<int32_t>(i + 1, 0)});
  }
  EXPECT_EQ(table.device_blocks(), 10u);
  EXPECT_EQ(table.host_blocks(), 4u);
  const auto order = table.in_chain_order();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(order[i]->key.id, keys[i].id);

  Segment* segment = table.find(keys[3].id);
  ASSERT_NE(segment, nullptr);
  EXPECT_TRUE(segment->holds(tokens, digest));
  EXPECT_FALSE(segment->holds(std::vector<uint32_t>{1, 2}, digest));
  EXPECT_FALSE(segment->holds(tokens, Digest{}));
  table.pin(*segment);
  table.pin(*segment);
  table.unpin(*segment);
  EXPECT_EQ(table.pinned(), 1u);
  EXPECT_DEATH(table.remove_from_device(keys[3].id), "broken invariant");
  table.unpin(*segment);
  EXPECT_EQ(table.pinned(), 0u);
  EXPECT_EQ(table.remove_from_device(keys[3].id).size(), 4u);
  EXPECT_EQ(table.find(keys[3].id), nullptr);
  EXPECT_EQ(table.device_blocks(), 6u);

  // What is on the host alone stays known, and is gone with its copy.
  table.remove_from_device(keys[2].id);
  EXPECT_EQ(table.find_on_device(keys[2].id), nullptr);
  ASSERT_NE(table.find(keys[2].id), nullptr);
  EXPECT_EQ(table.remove_from_host(keys[2].id).blocks.size(), 3u);
  EXPECT_EQ(table.find(keys[2].id), nullptr);
  EXPECT_EQ(table.host_blocks(), 1u);
}

}  // namespace
}  // namespace ragcache::worker
