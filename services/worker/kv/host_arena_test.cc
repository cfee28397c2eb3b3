#include "services/worker/kv/host_arena.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/kv/block_pool.h"

namespace ragcache::worker {
namespace {

constexpr kernels::KvLayout kLayout{2, 1, 16};
constexpr uint32_t kBlocks = 24;

class Arena : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + absl::StrCat("host_arena_", getpid());
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  HostArena open(uint32_t blocks = kBlocks, kernels::KvLayout layout = kLayout,
                 const Digest& model = sha256("model")) {
    auto arena = HostArena::open(path_, model, layout, blocks);
    EXPECT_TRUE(arena.ok()) << arena.status();
    return *std::move(arena);
  }

  static HostArena::Entry entry(const std::optional<HostArena::Entry>& parent, uint32_t name,
                                std::vector<int32_t> blocks) {
    const std::vector<uint32_t> tokens(blocks.size() * 16 - 3, name);
    HostArena::Entry made{.key = {.token_count = static_cast<uint32_t>(tokens.size()),
                                  .token_digest = digest_of_tokens(tokens)},
                          .blocks = std::move(blocks)};
    if (parent.has_value()) {
      made.key.parent = parent->key.id;
      made.key.depth = parent->key.depth + 1;
    }
    made.key.id = SegmentId::derive(
        parent.has_value() ? parent->key.id : SegmentId::root(sha256("model"), "s"),
        made.key.token_digest);
    return made;
  }
  // Contents that tell the segment and the block in it.
  static void fill(HostArena& arena, const HostArena::Entry& entry) {
    for (size_t i = 0; i < entry.blocks.size(); ++i) {
      std::memset(arena.block(entry.blocks[i]), entry.key.id.bytes[0] + static_cast<int>(i),
                  static_cast<size_t>(kLayout.block_bytes()));
    }
  }
  static void expect_filled(const HostArena& arena, const HostArena::Entry& entry) {
    for (size_t i = 0; i < entry.blocks.size(); ++i) {
      const uint8_t* block = arena.block(entry.blocks[i]);
      const auto expected = static_cast<uint8_t>(entry.key.id.bytes[0] + i);
      EXPECT_EQ(block[0], expected);
      EXPECT_EQ(block[kLayout.block_bytes() - 1], expected);
    }
  }
  static void save(HostArena& arena, const HostArena::Entry& entry) {
    arena.begin(entry);
    fill(arena, entry);
    arena.commit(entry);
  }
  static std::vector<SegmentId> ids(const std::vector<HostArena::Entry>& entries) {
    std::vector<SegmentId> ids;
    for (const auto& entry : entries) ids.push_back(entry.key.id);
    return ids;
  }

  void edit(const std::function<void(std::fstream&)>& change) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    change(file);
  }
  void flip(uint64_t offset) {
    edit([&](std::fstream& file) {
      file.seekg(static_cast<std::streamoff>(offset));
      const char byte = static_cast<char>(file.get() ^ 0x10);
      file.seekp(static_cast<std::streamoff>(offset));
      file.put(byte);
    });
  }

  std::string path_;
};

TEST_F(Arena, ShowsWhatWasCommittedToTheNextProcessAndNothingElse) {
  const auto root = entry({}, 1, {5, 2, 9});
  const auto child = entry(root, 2, {0});
  const auto grandchild = entry(child, 3, {7, 8});
  const auto erased = entry(root, 4, {1});
  {
    HostArena arena = open();
    EXPECT_TRUE(arena.recovered().empty());
    for (const auto& one : {root, child, erased}) save(arena, one);
    arena.begin(grandchild);
    fill(arena, grandchild);
    arena.erase(erased);
    EXPECT_TRUE(arena.has(root));
    EXPECT_FALSE(arena.has(erased));
    EXPECT_FALSE(arena.has(grandchild));
  }
  HostArena arena = open();
  ASSERT_EQ(ids(arena.recovered()), (std::vector{root.key.id, child.key.id}));
  EXPECT_EQ(arena.skipped(), 1u);
  const HostArena::Entry& found = arena.recovered()[1];
  EXPECT_EQ(found.key.parent, root.key.id);
  EXPECT_EQ(found.key.depth, 1u);
  EXPECT_EQ(found.key.token_count, child.key.token_count);
  EXPECT_EQ(found.key.token_digest, child.key.token_digest);
  EXPECT_EQ(arena.recovered()[0].blocks, root.blocks);
  expect_filled(arena, root);
}

TEST_F(Arena, MakesItselfAnewWhereTheFileIsNotItsOwn) {
  const auto root = entry({}, 1, {3, 4});
  const auto expect_empty = [&](const char* what, uint32_t blocks = kBlocks,
                                kernels::KvLayout layout = kLayout,
                                const Digest& model = sha256("model")) {
    SCOPED_TRACE(what);
    {
      HostArena arena = open(blocks, layout, model);
      EXPECT_TRUE(arena.recovered().empty());
      EXPECT_FALSE(arena.has(root));
    }
    std::filesystem::remove(path_);
    HostArena arena = open();
    save(arena, root);
  };
  expect_empty("no file");
  ASSERT_EQ(open().recovered().size(), 1u);
  expect_empty("more blocks", kBlocks + 1);
  expect_empty("fewer blocks", kBlocks - 1);
  expect_empty("other layers", kBlocks, {3, 1, 16});
  expect_empty("other type", kBlocks, {2, 1, 16, kernels::KvType::kF16});
  expect_empty("other model", kBlocks, kLayout, sha256("other"));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  expect_empty("cut off at its end");
  std::filesystem::resize_file(path_, 50);
  expect_empty("cut off in its header");
  for (const uint64_t offset : {0, 16, 20, 24, 30, 56, 64, 72, 80, 84, 88, 95}) {
    flip(offset);
    expect_empty(absl::StrCat("byte ", offset, " of the header").c_str());
  }
  // Another version by a program that keeps its checksum right.
  edit([](std::fstream& file) {
    char header[96];
    file.read(header, sizeof header);
    header[16] = 2;
    const uint64_t checksum = checksum_of({reinterpret_cast<uint8_t*>(header), 88});
    std::memcpy(header + 88, &checksum, sizeof checksum);
    file.seekp(0);
    file.write(header, sizeof header);
  });
  expect_empty("other version");
  edit([](std::fstream& file) { file << "something else altogether"; });
  expect_empty("not an arena");
}

TEST_F(Arena, SkipsEntriesThatAreDamagedAndWhatHangsBelowThem) {
  const auto root = entry({}, 1, {0, 1});
  const auto child = entry(root, 2, {2, 3, 4});
  const auto grandchild = entry(child, 3, {5});
  const auto other = entry({}, 4, {6});
  constexpr uint64_t kDirectory = 4096;
  constexpr uint64_t kChain = 2 * 4096;
  const auto kept_after = [&](const std::function<void()>& damage) {
    std::filesystem::remove(path_);
    {
      HostArena arena = open();
      for (const auto& one : {root, child, grandchild, other}) save(arena, one);
    }
    damage();
    HostArena arena = open();
    EXPECT_EQ(arena.recovered().size() + arena.skipped(), 4u);
    // What was skipped stays so.
    return ids(arena.recovered());
  };
  const std::vector<SegmentId> all{root.key.id, other.key.id, child.key.id, grandchild.key.id};
  const auto undamaged = kept_after([] {});
  EXPECT_EQ(std::set<SegmentId>(undamaged.begin(), undamaged.end()),
            std::set<SegmentId>(all.begin(), all.end()));
  // Any byte of the child's entry but those without meaning.
  for (uint64_t byte = 0; byte < 88; ++byte) {
    const auto kept = kept_after([&] { flip(kDirectory + 2 * 128 + byte); });
    EXPECT_EQ(std::set<SegmentId>(kept.begin(), kept.end()),
              (std::set<SegmentId>{root.key.id, other.key.id}))
        << "byte " << byte;
  }
  for (uint64_t block : {2, 3, 4}) {
    const auto kept = kept_after([&] { flip(kChain + block * 4); });
    EXPECT_EQ(kept.size(), 2u) << "chain of block " << block;
  }
  // Two entries, right in themselves, with one block.
  const auto thief = entry({}, 9, {7, 3});
  const auto kept = kept_after([&] {
    HostArena arena = open();
    arena.erase(other);
    save(arena, thief);
    // Its chain is the child's from block 3 on; both are cut at their ends otherwise.
    save(arena, entry(root, 2, {2, 4, 3}));
  });
  EXPECT_EQ(kept, std::vector<SegmentId>{root.key.id});
}

TEST_F(Arena, IsOneWorkersAtATime) {
  HostArena arena = open();
  const auto second = HostArena::open(path_, sha256("model"), kLayout, kBlocks);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(second.status().message()).find("in use by another worker"),
            std::string::npos);
}

TEST_F(Arena, RefusesMoreThanItsFileSystemHas) {
  const auto arena = HostArena::open(path_, sha256("model"), {64, 64, 256}, 1u << 30);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(arena.status().message()).find("host_memory_mib"), std::string::npos);
  EXPECT_EQ(HostArena::open("/nowhere/arena", sha256("model"), kLayout, 4).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Random saves, erases and restarts at any moment against a map.
TEST_F(Arena, AgreesWithAMapOverRandomOperations) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::optional<HostArena> arena(open());
  std::map<SegmentId, HostArena::Entry> there;
  BlockNumbers blocks(std::vector<bool>(kBlocks, false));
  uint32_t name = 0;
  const auto has_child = [&](const SegmentId& id) {
    for (const auto& [other, entry] : there) {
      if (entry.key.parent == id) return true;
    }
    return false;
  };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t choice = random() % 100;
    const uint32_t count = 1 + random() % 4;
    if (choice < 50 && count <= blocks.free()) {
      std::optional<HostArena::Entry> parent;
      if (!there.empty() && random() % 3 > 0) {
        parent = std::next(there.begin(), random() % there.size())->second;
      }
      const auto added = entry(parent, ++name, blocks.take(count));
      arena->begin(added);
      fill(*arena, added);
      if (random() % 8 > 0) {
        arena->commit(added);
        there.emplace(added.key.id, added);
      } else {  // given up
        arena->erase(added);
        blocks.give_back(added.blocks);
      }
    } else if (choice < 97 && !there.empty()) {
      const auto victim = std::next(there.begin(), random() % there.size());
      if (has_child(victim->first)) continue;
      arena->erase(victim->second);
      blocks.give_back(victim->second.blocks);
      there.erase(victim);
    } else if (choice >= 97) {
      // Dies in the middle of a save or not.
      if (blocks.free() > 0 && random() % 2 == 0) {
        const auto half = entry({}, ++name, {blocks.take()});
        arena->begin(half);
        blocks.give_back(half.blocks);
      }
      arena.reset();
      arena.emplace(open());
      ASSERT_EQ(arena->recovered().size(), there.size()) << "round " << round;
      for (const auto& found : arena->recovered()) {
        ASSERT_TRUE(there.contains(found.key.id));
        EXPECT_EQ(found.blocks, there.at(found.key.id).blocks);
        expect_filled(*arena, found);
      }
    }
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace ragcache::worker
