#include "services/controller/tree/knowledge_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "services/controller/policy/lru.h"

namespace ragcache::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kBlockTokens = 16;

SegmentId id_of(const std::string& path) { return SegmentId::root(sha256(path), ""); }

// "SAB" is the chain S, SA, SAB: one letter a document, a letter's rank its length in blocks.
std::vector<SegmentSpec> chain_of(const std::string& path) {
  std::vector<SegmentSpec> chain;
  for (size_t depth = 1; depth <= path.size(); ++depth) {
    const uint32_t blocks = 1 + static_cast<uint32_t>(path[depth - 1]) % 3;
    chain.push_back({id_of(path.substr(0, depth)), blocks * kBlockTokens - 5});
  }
  return chain;
}

uint32_t blocks_of(const std::string& path) { return 1 + static_cast<uint32_t>(path.back()) % 3; }

class KnowledgeTreeTest : public ::testing::Test {
 protected:
  void compute(const std::string& path) {
    const auto chain = chain_of(path);
    tree_.acquire(chain);
    for (const SegmentSpec& spec : chain) tree_.set_cached(spec.id);
    tree_.release(chain);
  }

  LruPolicy policy_;
  KnowledgeTree tree_{policy_, kBlockTokens};
};

TEST_F(KnowledgeTreeTest, MatchesTheLongestCachedPrefixInOrder) {
  compute("SAB");
  EXPECT_EQ(tree_.match(chain_of("SABC")).cached, 3u);
  EXPECT_EQ(tree_.match(chain_of("SAC")).cached, 2u);
  // The same document after other documents is another node.
  EXPECT_EQ(tree_.match(chain_of("SBA")).cached, 1u);
  EXPECT_EQ(tree_.match(chain_of("TAB")).cached, 0u);
}

TEST_F(KnowledgeTreeTest, EvictsLeafBeforeParentEvenIfTheParentIsOlder) {
  compute("SA");
  compute("SAB");
  compute("SC");
  //   S
  //  / \        S and SA were used before SAB; SC last.
  // SA  SC
  //  |
  // SAB
  const auto evicted = tree_.evict(tree_.evictable_blocks());
  EXPECT_THAT(evicted, ElementsAre(id_of("SAB"), id_of("SA"), id_of("SC"), id_of("S")));
  EXPECT_EQ(tree_.node_count(), 0u);
}

TEST_F(KnowledgeTreeTest, EvictsNothingIfItCannotFreeEnough) {
  compute("SA");
  const auto held = chain_of("S");
  tree_.acquire(held);
  EXPECT_THAT(tree_.evict(blocks_of("SA") + 1), IsEmpty());
  EXPECT_EQ(tree_.node_count(), 2u);
  EXPECT_THAT(tree_.evict(blocks_of("SA")), ElementsAre(id_of("SA")));
  tree_.release(held);
}

TEST_F(KnowledgeTreeTest, KeepsWhatAReleasedRequestFinishedAndDropsWhatItDidNot) {
  const auto chain = chain_of("SAB");
  tree_.acquire(chain);
  EXPECT_TRUE(tree_.match(chain).computing);
  EXPECT_TRUE(tree_.set_cached(id_of("S")));
  EXPECT_TRUE(tree_.set_cached(id_of("SA")));
  EXPECT_FALSE(tree_.set_cached(id_of("SA")));
  tree_.release(chain);
  EXPECT_EQ(tree_.match(chain).cached, 2u);
  EXPECT_FALSE(tree_.match(chain).computing);
  tree_.check_invariants();
}

TEST_F(KnowledgeTreeTest, ClearsAllButWhatIsInUse) {
  compute("SA");
  compute("TB");
  const auto held = chain_of("SA");
  tree_.acquire(held);
  EXPECT_THAT(tree_.clear(), ElementsAre(id_of("TB"), id_of("T")));
  EXPECT_EQ(tree_.match(held).cached, 2u);
  tree_.release(held);
}

TEST_F(KnowledgeTreeTest, RemovesAMissingNodeWithAllBelowIt) {
  compute("SABC");
  compute("SD");
  EXPECT_THAT(tree_.remove_subtree(id_of("SA")),
              ElementsAre(id_of("SABC"), id_of("SAB"), id_of("SA")));
  EXPECT_EQ(tree_.match(chain_of("SD")).cached, 2u);
  tree_.check_invariants();
}

TEST_F(KnowledgeTreeTest, RestoresWhatAWorkerHeld) {
  const auto chain = chain_of("SA");
  EXPECT_FALSE(tree_.restore(chain[1], chain[0].id, false));
  EXPECT_TRUE(tree_.restore(chain[0], {}, true));
  EXPECT_TRUE(tree_.restore(chain[1], chain[0].id, false));
  EXPECT_FALSE(tree_.restore(chain[1], chain[0].id, false));
  EXPECT_EQ(tree_.match(chain).cached, 2u);
  tree_.check_invariants();
}

// A plain model of the same tree: maps scanned in full, no incremental state.
class ReferenceTree {
 public:
  size_t match(const std::string& path) const {
    size_t depth = 0;
    while (depth < path.size()) {
      auto it = nodes_.find(path.substr(0, depth + 1));
      if (it == nodes_.end() || !it->second.cached) break;
      ++depth;
    }
    return depth;
  }
  bool computing(const std::string& path) const {
    auto it = nodes_.find(path.substr(0, match(path) + 1));
    return match(path) < path.size() && it != nodes_.end();
  }
  void acquire(const std::string& path) {
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      Node& node = nodes_[path.substr(0, depth)];
      ++node.users;
      node.used_at = ++time_;
    }
  }
  void release(const std::string& path) {
    for (size_t depth = path.size(); depth >= 1; --depth) {
      auto it = nodes_.find(path.substr(0, depth));
      if (--it->second.users == 0 && !it->second.cached) nodes_.erase(it);
    }
  }
  void set_cached(const std::string& path) { nodes_.at(path).cached = true; }
  std::vector<SegmentId> evict(uint32_t blocks) {
    uint32_t available = 0;
    for (const auto& [path, node] : nodes_) {
      if (node.cached && node.users == 0) available += blocks_of(path);
    }
    std::vector<SegmentId> evicted;
    if (blocks > available) return evicted;
    for (uint32_t freed = 0; freed < blocks;) {
      auto victim = nodes_.end();
      for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
        auto next = std::next(it);
        const bool leaf = next == nodes_.end() || !next->first.starts_with(it->first);
        if (!leaf || !it->second.cached || it->second.users > 0) continue;
        if (victim == nodes_.end() || it->second.used_at < victim->second.used_at) victim = it;
      }
      freed += blocks_of(victim->first);
      evicted.push_back(id_of(victim->first));
      nodes_.erase(victim);
    }
    return evicted;
  }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    bool cached = false;
    int users = 0;
    uint64_t used_at = 0;
  };
  std::map<std::string, Node> nodes_;
  uint64_t time_ = 0;
};

TEST(KnowledgeTree, AgreesWithAPlainModelOverRandomOperations) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  std::cout << "seed " << seed << " (--gtest_random_seed)\n";
  std::mt19937_64 random(seed);
  auto below = [&](uint64_t n) { return random() % n; };

  LruPolicy policy;
  KnowledgeTree tree(policy, kBlockTokens);
  ReferenceTree reference;
  struct Running {
    std::string path;
    size_t ready;
  };
  std::vector<Running> running;
  for (int step = 0; step < 100'000; ++step) {
    std::string path = below(5) == 0 ? "T" : "S";
    for (uint64_t depth = below(4); depth > 0; --depth) path += static_cast<char>('A' + below(6));
    const auto chain = chain_of(path);
    const auto match = tree.match(chain);
    ASSERT_EQ(match.cached, reference.match(path));
    ASSERT_EQ(match.computing, reference.computing(path));
    const uint64_t action = below(10);
    if (action < 4 && running.size() < 8 && !match.computing) {
      tree.acquire(chain);
      reference.acquire(path);
      running.push_back({path, match.cached});
    } else if (action < 7 && !running.empty()) {
      Running& request = running[below(running.size())];
      if (request.ready < request.path.size()) {
        const std::string next = request.path.substr(0, ++request.ready);
        ASSERT_TRUE(tree.set_cached(id_of(next)));
        reference.set_cached(next);
      }
    } else if (action < 9 && !running.empty()) {
      const size_t index = below(running.size());
      tree.release(chain_of(running[index].path));
      reference.release(running[index].path);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (action == 9) {
      const auto blocks = static_cast<uint32_t>(below(6));
      ASSERT_EQ(tree.evict(blocks), reference.evict(blocks));
    }
    ASSERT_EQ(tree.node_count(), reference.size());
    if (step % 100 == 0) tree.check_invariants();
  }
}

}  // namespace
}  // namespace ragcache::controller
