#include "services/worker/kv/transfer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/kv/block_pool.h"

namespace ragcache::worker {
namespace {

constexpr kernels::KvLayout kLayout{7, 2, 16};
constexpr uint32_t kBlocks = 16;

class Transfers : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + absl::StrCat("transfer_", getpid());
    arena_.emplace(*HostArena::open(path_, sha256("model"), kLayout, kBlocks));
    std::mt19937 random(5);
    for (size_t i = 0; i < kBlocks * block_bytes(); ++i) device()[i] = random();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static size_t block_bytes() { return static_cast<size_t>(kLayout.block_bytes()); }
  uint8_t* device() { return static_cast<uint8_t*>(pool_.memory()); }
  uint8_t* device(int32_t block) { return device() + block * block_bytes(); }

  Transfer::Piece piece(uint32_t name, std::vector<int32_t> host, std::vector<int32_t> device) {
    const std::vector<uint32_t> tokens(host.size() * 16, name);
    const Digest digest = digest_of_tokens(tokens);
    return {.host = {.key = {.id = SegmentId::derive(SegmentId::root(digest, "s"), digest),
                             .token_count = static_cast<uint32_t>(tokens.size()),
                             .token_digest = digest},
                     .blocks = std::move(host)},
            .device_blocks = std::move(device),
            .verify = true};
  }
  std::shared_ptr<Transfer> make(Transfer::Kind kind, std::vector<Transfer::Piece> pieces) {
    return std::make_shared<Transfer>(kind, ++number_, std::move(pieces), kLayout);
  }

  std::string path_;
  std::optional<HostArena> arena_;
  BlockPool pool_ = *BlockPool::create(kLayout, kBlocks);
  uint64_t number_ = 0;
};

TEST_F(Transfers, CopyThereAndBackInOrderLayerByLayer) {
  int ended = 0;
  TransferActor actor(Copier(kLayout, device(), *arena_), [&] { ++ended; });
  const std::vector<uint8_t> first(device(0), device(2));
  const std::vector<uint8_t> second(device(2), device(3));
  actor.submit(make(Transfer::Kind::kSave, {piece(1, {5, 3}, {0, 1})}));
  actor.submit(make(Transfer::Kind::kSave, {piece(2, {4}, {2})}));
  const auto load = make(Transfer::Kind::kLoad, {piece(1, {5, 3}, {10, 12}), piece(2, {4}, {11})});
  actor.submit(load);
  // The blocks are given to another segment at once: the load before it still has the old one.
  actor.submit(make(Transfer::Kind::kErase, {piece(1, {5, 3}, {})}));
  const auto reuse = make(Transfer::Kind::kSave, {piece(3, {3, 5}, {7, 8})});
  actor.submit(reuse);
  EXPECT_TRUE(actor.wait(*load, 3));
  EXPECT_GT(load->layers(), 3);
  EXPECT_TRUE(actor.wait_for_end(*reuse));
  EXPECT_EQ(std::memcmp(device(10), first.data(), block_bytes()), 0);
  EXPECT_EQ(std::memcmp(device(12), first.data() + block_bytes(), block_bytes()), 0);
  EXPECT_EQ(std::memcmp(device(11), second.data(), block_bytes()), 0);
  for (const auto& done : load->pieces) EXPECT_EQ(done.outcome, Transfer::Outcome::kDone);
  for (size_t l = 1; l < load->copied.size(); ++l) EXPECT_LE(load->copied[l - 1], load->copied[l]);
  EXPECT_LE(load->start, load->copied.front());
  EXPECT_LE(load->copied.back(), load->end);
  EXPECT_FALSE(arena_->has(piece(1, {5, 3}, {}).host));
  EXPECT_TRUE(arena_->has(piece(3, {3, 5}, {}).host));
  actor.stop();
  EXPECT_EQ(ended, 5);
}

TEST_F(Transfers, TellWhichSegmentIsDamagedOrMissingAndCopyTheOthers) {
  Copier copier(kLayout, device(), *arena_);
  const auto run = [&](Transfer& transfer) {
    while (!copier.advance(transfer)) {
    }
  };
  for (uint32_t i = 0; i < 3; ++i) {
    run(*make(Transfer::Kind::kSave,
              {piece(i, {static_cast<int32_t>(i)}, {static_cast<int32_t>(i)})}));
  }
  const auto load = [&](bool verify) {
    std::vector<Transfer::Piece> pieces{piece(0, {0}, {10}), piece(1, {1}, {11}),
                                        piece(9, {2}, {12})};
    for (auto& one : pieces) one.verify = verify;
    const auto transfer = make(Transfer::Kind::kLoad, std::move(pieces));
    run(*transfer);
    return transfer;
  };
  for (int64_t byte = 0; byte < kLayout.block_bytes(); byte += 1237) {
    arena_->block(1)[byte] ^= 1;
    const auto transfer = load(true);
    EXPECT_EQ(transfer->pieces[0].outcome, Transfer::Outcome::kDone);
    EXPECT_EQ(transfer->pieces[1].outcome, Transfer::Outcome::kDamaged) << "byte " << byte;
    EXPECT_EQ(transfer->pieces[2].outcome, Transfer::Outcome::kMissing);
    EXPECT_EQ(std::memcmp(device(10), device(0), block_bytes()), 0);
    EXPECT_EQ(load(false)->pieces[1].outcome, Transfer::Outcome::kDone);
    arena_->block(1)[byte] ^= 1;
  }
  arena_->checksums(1)[6] ^= 1;
  EXPECT_EQ(load(true)->pieces[1].outcome, Transfer::Outcome::kDamaged);
}

TEST_F(Transfers, EndSoonWhenNobodyWantsThem) {
  Copier copier(kLayout, device(), *arena_);
  const auto save = make(Transfer::Kind::kSave, {piece(1, {5}, {0})});
  EXPECT_FALSE(copier.advance(*save));
  save->cancel();
  EXPECT_TRUE(copier.advance(*save));
  EXPECT_TRUE(save->ended());
  EXPECT_EQ(save->pieces[0].outcome, Transfer::Outcome::kFailed);
  EXPECT_FALSE(arena_->has(save->pieces[0].host));
  // One that never began took no time.
  const auto waiting = make(Transfer::Kind::kSave, {piece(1, {5}, {0})});
  waiting->cancel();
  EXPECT_TRUE(copier.advance(*waiting));
  EXPECT_EQ(waiting->end - waiting->start, Duration::zero());
  EXPECT_EQ(waiting->done_bytes(), 0u);
}

TEST_F(Transfers, GoNoFasterThanTheyAreThrottled) {
  TransferActor actor(
      Copier(kLayout, device(), *arena_), [] {}, 1.0);
  const auto save = make(Transfer::Kind::kSave, {piece(1, {5, 6, 7}, {0, 1, 2})});
  actor.submit(save);
  ASSERT_TRUE(actor.wait_for_end(*save));
  EXPECT_GE(to_seconds(save->end - save->start) * 1024 * 1024, static_cast<double>(save->bytes()));
}

TEST_F(Transfers, AreLeftAtAStop) {
  TransferActor actor(
      Copier(kLayout, device(), *arena_), [] {}, 1e-3);
  const auto save = make(Transfer::Kind::kSave, {piece(1, {5}, {0})});
  actor.submit(save);
  actor.stop();
  EXPECT_FALSE(save->ended());
  EXPECT_FALSE(actor.wait(*save, 0));
}

}  // namespace
}  // namespace ragcache::worker
