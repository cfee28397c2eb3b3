#include "services/controller/tree/knowledge_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "services/controller/tree/reference_tree.h"

namespace ragcache::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// "S" and so on in blocks: A 3, B 1, C 2, D 3, E 1, F 2, S 3, T 1 (reference_policies.h).
class KnowledgeTreeTest : public ::testing::Test {
 protected:
  explicit KnowledgeTreeTest(uint32_t host_blocks = 0, const char* policy = "lru")
      : policy_(*make_policy(policy)), tree_(*policy_, kBlockTokens, host_blocks) {}

  std::vector<SegmentSpec> chain(const std::string& path) {
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      paths_[id_of(path.substr(0, depth))] = path.substr(0, depth);
    }
    return chain_of(path);
  }

  // A request from beginning to end.
  void use(const std::string& path) {
    const auto specs = chain(path);
    tree_.acquire(specs, RequestCost{1, 100});
    for (const SegmentSpec& spec : specs) tree_.set_on_device(spec.id);
    tree_.release(specs);
  }

  // "copy SA", "drop SA" (from the device), "release SA" (from the host).
  std::vector<std::string> told(const std::vector<Move>& moves) {
    std::vector<std::string> words;
    for (const Move& move : moves) {
      EXPECT_EQ(move.blocks, blocks_of(paths_.at(move.id)));
      const char* verb = move.kind == Move::Kind::kReplicate    ? "copy "
                         : move.kind == Move::Kind::kDropDevice ? "drop "
                                                                : "release ";
      words.push_back(verb + paths_.at(move.id));
      if (move.kind == Move::Kind::kReplicate) tree_.set_on_host(move.id);
    }
    tree_.check_invariants();
    return words;
  }

  std::vector<std::string> evict(uint32_t blocks) { return told(tree_.evict(blocks)); }
  std::vector<std::string> evict_all() { return evict(tree_.evictable_blocks()); }

  std::unique_ptr<EvictionPolicy> policy_;
  KnowledgeTree tree_;
  std::map<SegmentId, std::string> paths_;
};

TEST_F(KnowledgeTreeTest, MatchesTheLongestCachedPrefixInOrder) {
  use("SAB");
  EXPECT_EQ(tree_.match(chain("SABC")).device, 3u);
  EXPECT_EQ(tree_.match(chain("SAC")).device, 2u);
  // The same document after other documents is another node.
  EXPECT_EQ(tree_.match(chain("SBA")).device, 1u);
  EXPECT_EQ(tree_.match(chain("TAB")).device, 0u);
}

TEST_F(KnowledgeTreeTest, EvictsLeafBeforeParentEvenIfTheParentIsOlder) {
  use("SA");
  use("SAB");
  use("SC");
  EXPECT_THAT(evict_all(), ElementsAre("drop SAB", "drop SA", "drop SC", "drop S"));
  EXPECT_EQ(tree_.node_count(), 0u);
  EXPECT_EQ(tree_.evictions().freed, 4u);
}

TEST_F(KnowledgeTreeTest, EvictsNothingIfItCannotFreeEnough) {
  use("SA");
  const auto held = chain("S");
  tree_.hold(held);
  EXPECT_THAT(evict(blocks_of("SA") + 1), IsEmpty());
  EXPECT_EQ(tree_.node_count(), 2u);
  EXPECT_THAT(evict(blocks_of("SA")), ElementsAre("drop SA"));
  tree_.release(held);
  EXPECT_THAT(evict_all(), ElementsAre("drop S"));
}

TEST_F(KnowledgeTreeTest, KeepsWhatAReleasedRequestFinishedAndDropsWhatItDidNot) {
  const auto specs = chain("SAB");
  tree_.acquire(specs, std::nullopt);
  EXPECT_TRUE(tree_.match(specs).pending);
  EXPECT_TRUE(tree_.set_on_device(id_of("S")));
  EXPECT_TRUE(tree_.set_on_device(id_of("SA")));
  EXPECT_FALSE(tree_.set_on_device(id_of("SA")));
  tree_.release(specs);
  EXPECT_EQ(tree_.match(specs).device, 2u);
  EXPECT_FALSE(tree_.match(specs).pending);
  tree_.check_invariants();
}

TEST_F(KnowledgeTreeTest, ClearsAllButWhatIsInUseOrKept) {
  use("SA");
  use("TB");
  use("TC");
  const auto used = chain("SA");
  tree_.hold(used);
  EXPECT_TRUE(tree_.keep(chain("TC"), true));
  EXPECT_THAT(told(tree_.clear()), ElementsAre("drop TB"));
  EXPECT_EQ(tree_.match(used).device, 2u);
  tree_.release(used);
  EXPECT_THAT(told(tree_.clear()), ElementsAre("drop SA", "drop S"));
  EXPECT_EQ(tree_.kept_nodes(), 1u);
}

TEST_F(KnowledgeTreeTest, LosesANodeWithAllBelowIt) {
  use("SABC");
  use("SD");
  EXPECT_THAT(told(tree_.lose(id_of("SA"), Tier::kDevice)), ElementsAre("drop SABC", "drop SAB"));
  EXPECT_EQ(tree_.match(chain("SD")).device, 2u);
  EXPECT_EQ(tree_.match(chain("SA")).device, 1u);
  // What is in use is not lost without those who use it.
  const auto used = chain("SD");
  tree_.hold(used);
  EXPECT_THAT(told(tree_.lose(id_of("S"), Tier::kDevice)), IsEmpty());
  EXPECT_EQ(tree_.node_count(), 2u);
  tree_.release(used);
}

TEST_F(KnowledgeTreeTest, WhatOperatorsKeepGoesLastAndSoWhatStandsAboveIt) {
  EXPECT_FALSE(tree_.keep(chain("SA"), true));
  use("SA");
  use("TB");
  EXPECT_TRUE(tree_.keep(chain("SA"), true));
  EXPECT_THAT(evict_all(), ElementsAre("drop TB", "drop T", "drop SA", "drop S"));
  EXPECT_EQ(tree_.kept_nodes(), 0u);
  use("SA");
  use("TB");
  EXPECT_TRUE(tree_.keep(chain("SA"), true));
  EXPECT_TRUE(tree_.keep(chain("SA"), false));
  EXPECT_THAT(evict_all(), ElementsAre("drop SA", "drop S", "drop TB", "drop T"));
}

TEST_F(KnowledgeTreeTest, WhatWaitingRequestsWillWantGoesLast) {
  const auto wanted = chain("SA");
  tree_.expect(wanted);  // before it is there
  use("SA");
  use("SB");
  use("SC");
  EXPECT_THAT(evict(1), ElementsAre("drop SB"));
  tree_.expect(chain("SC"));
  tree_.unexpect(wanted);
  EXPECT_THAT(evict(1), ElementsAre("drop SA"));
  EXPECT_THAT(evict(1), ElementsAre("drop SC"));
  tree_.unexpect(chain("SC"));
}

TEST_F(KnowledgeTreeTest, WithoutAHostTierNothingIsCopied) {
  use("SA");
  EXPECT_THAT(told(tree_.replicate(id_of("SA"), true)), IsEmpty());
  EXPECT_THAT(evict_all(), ElementsAre("drop SA", "drop S"));
}

TEST_F(KnowledgeTreeTest, TenThousandChildrenOfOneNodeLeaveInTheirOrder) {
  const SegmentSpec root{id_of("S"), tokens_of("S")};
  std::vector<SegmentId> order;
  for (int i = 0; i < 10'000; ++i) {
    const std::vector<SegmentSpec> specs{root, {id_of(std::to_string(i)), 20}};
    tree_.acquire(specs, RequestCost{1, 20});
    for (const SegmentSpec& spec : specs) tree_.set_on_device(spec.id);
    tree_.release(specs);
    order.push_back(specs[1].id);
  }
  order.push_back(root.id);
  std::vector<SegmentId> left;
  for (const Move& move : tree_.evict(tree_.evictable_blocks())) left.push_back(move.id);
  EXPECT_EQ(left, order);
}

TEST(KnowledgeTree, TellsItsPolicyThatAllHasLeftWhenItEnds) {
  const auto policy = *make_policy("lfu", {.remember = false});
  const auto specs = chain_of("SA");
  const auto priority = [&] {
    return policy->priority(specs[1].id, specs[1].tokens, Tier::kDevice);
  };
  {
    KnowledgeTree tree(*policy, kBlockTokens, 0);
    tree.acquire(specs, RequestCost{1, 100});
    for (const SegmentSpec& spec : specs) tree.set_on_device(spec.id);
    tree.release(specs);
    EXPECT_EQ(priority(), 1);
  }
  EXPECT_EQ(priority(), 0);
}

class TwoTierTest : public KnowledgeTreeTest {
 protected:
  explicit TwoTierTest(uint32_t host_blocks = 100) : KnowledgeTreeTest(host_blocks) {}
};

TEST_F(TwoTierTest, CopiesAtTheFirstEvictionOnlyAncestorsFirst) {
  use("SAB");
  EXPECT_THAT(evict(1), ElementsAre("copy S", "copy SA", "copy SAB", "drop SAB"));
  EXPECT_EQ(tree_.match(chain("SAB")).device, 2u);
  EXPECT_EQ(tree_.match(chain("SAB")).host, 1u);
  EXPECT_THAT(evict(1), ElementsAre("drop SA"));

  // Loaded again, and evicted again: the copies have stayed.
  use("SAB");
  EXPECT_EQ(tree_.match(chain("SAB")).device, 3u);
  EXPECT_EQ(tree_.host_blocks(), 7u);
  EXPECT_THAT(evict_all(), ElementsAre("drop SAB", "drop SA", "drop S"));
  EXPECT_EQ(tree_.match(chain("SAB")).host, 3u);
  EXPECT_EQ(tree_.cached_tokens(), tree_.host_tokens());
  EXPECT_EQ(tree_.evictions().demoted, 5u);
}

TEST_F(TwoTierTest, WhatIsBeingLoadedIsPendingAndStaysOnTheHostIfThatIsBrokenOff) {
  use("SA");
  evict_all();
  const auto specs = chain("SA");
  tree_.acquire(specs, std::nullopt);
  EXPECT_TRUE(tree_.match(specs).pending);
  EXPECT_TRUE(tree_.set_on_device(id_of("S")));
  tree_.release(specs);
  EXPECT_EQ(tree_.match(specs).device, 1u);
  EXPECT_EQ(tree_.match(specs).host, 1u);
  tree_.check_invariants();
}

TEST_F(TwoTierTest, LosingAHostCopyTakesTheCopiesBelowIt) {
  use("SAB");
  evict(4);  // SAB and SA are on the host alone
  EXPECT_THAT(told(tree_.lose(id_of("SA"), Tier::kHost)), ElementsAre("release SAB"));
  EXPECT_EQ(tree_.node_count(), 1u);
  use("SAB");
  EXPECT_THAT(told(tree_.replicate(id_of("SAB"), false)), ElementsAre("copy SA", "copy SAB"));
  EXPECT_THAT(told(tree_.lose(id_of("S"), Tier::kHost)), ElementsAre("release SAB", "release SA"));
  EXPECT_EQ(tree_.match(chain("SAB")).device, 3u);
}

TEST_F(TwoTierTest, LosingTheDeviceLeavesWhatHasCopies) {
  use("SA");
  use("SB");
  EXPECT_THAT(told(tree_.replicate(id_of("SA"), false)), ElementsAre("copy S", "copy SA"));
  EXPECT_THAT(told(tree_.lose(id_of("S"), Tier::kDevice)),
              UnorderedElementsAre("drop SA", "drop SB"));
  EXPECT_EQ(tree_.match(chain("SA")).host, 2u);
  EXPECT_EQ(tree_.match(chain("SB")).host, 1u);
}

TEST_F(TwoTierTest, RestoresParentsFirstAndEvictsTheUnclaimedFirst) {
  const auto specs = chain("SA");
  EXPECT_FALSE(tree_.restore(specs[1], specs[0].id, false, true, false));
  EXPECT_TRUE(tree_.restore(specs[0], {}, true, true, true));
  EXPECT_FALSE(tree_.restore(specs[0], {}, true, true, true));
  EXPECT_TRUE(tree_.restore(specs[1], specs[0].id, false, false, true));
  EXPECT_FALSE(tree_.restore(chain("SAB")[2], specs[1].id, false, true, false));  // a gap
  EXPECT_EQ(tree_.match(specs).device, 1u);
  EXPECT_EQ(tree_.match(specs).host, 1u);
  use("TB");
  ASSERT_TRUE(tree_.restore(chain("SC")[1], specs[0].id, false, true, false));
  // SC was restored last, but no request has asked for it; of S one has not either.
  EXPECT_THAT(evict(2), ElementsAre("copy SC", "drop SC"));
  EXPECT_THAT(evict(1), ElementsAre("drop S"));
  EXPECT_THAT(evict(1), ElementsAre("copy T", "copy TB", "drop TB"));
}

class SmallHostTest : public TwoTierTest {
 protected:
  SmallHostTest() : TwoTierTest(7) {}
};

TEST_F(SmallHostTest, ReleasesCopiesLeafFirstAndNeverThoseOfAncestors) {
  use("SA");
  EXPECT_THAT(told(tree_.replicate(id_of("SA"), false)), ElementsAre("copy S", "copy SA"));
  use("SC");
  use("SA");
  EXPECT_THAT(evict(2), ElementsAre("release SA", "copy SC", "drop SC"));
  EXPECT_EQ(tree_.evictions().copies, 1u);
  // Next what is on the host alone goes, and from the cache.
  EXPECT_THAT(evict(3), ElementsAre("release SC", "copy SA", "drop SA"));
  EXPECT_EQ(tree_.evictions().host, 1u);
  EXPECT_EQ(tree_.match(chain("SC")).cached(), 1u);
}

class RatedCopiesTest : public KnowledgeTreeTest {
 protected:
  RatedCopiesTest() : KnowledgeTreeTest(7, "adaptive") {}

  // Fills the host: SB, asked for so often, is on the device and copied; SC, asked for twice, and
  // SE are on the host alone. SF is on the device, the next to go.
  void fill(int uses_of_b, int uses_of_f) {
    for (int i = 0; i < uses_of_b; ++i) use("SB");
    EXPECT_THAT(told(tree_.replicate(id_of("SB"), true)), ElementsAre("copy S", "copy SB"));
    use("SC");
    use("SC");
    EXPECT_THAT(evict(2), ElementsAre("copy SC", "drop SC"));
    use("SE");
    EXPECT_THAT(evict(1), ElementsAre("copy SE", "drop SE"));
    for (int i = 0; i < uses_of_f; ++i) use("SF");
  }
};

TEST_F(RatedCopiesTest, ACopyIsWorthLessThanANodeThatTheHostAloneHas) {
  fill(2, 2);
  EXPECT_THAT(evict(2), ElementsAre("release SB", "release SE", "copy SF", "drop SF"));
  // And makes no room for itself out of such nodes.
  EXPECT_THAT(told(tree_.replicate(id_of("SB"), true)), IsEmpty());
}

TEST_F(RatedCopiesTest, WhatIsWorthLessThanWhatWouldGoForItIsNotCopied) {
  fill(16, 1);
  EXPECT_THAT(evict(2), ElementsAre("drop SF"));
  EXPECT_EQ(tree_.evictions().freed, 1u);
}

TEST_F(RatedCopiesTest, TheCopyOfWhatIsWantedFarMoreOftenStays) {
  fill(16, 2);
  EXPECT_THAT(evict(2), ElementsAre("release SE", "release SC", "copy SF", "drop SF"));
}

TEST_F(RatedCopiesTest, TheCopyOfAKeptNodeStays) {
  fill(2, 2);
  ASSERT_TRUE(tree_.keep(chain("SB"), true));
  EXPECT_THAT(evict(2), ElementsAre("release SE", "release SC", "copy SF", "drop SF"));
}

TEST_F(SmallHostTest, FreesWhereNothingCanBeReleased) {
  use("SA");
  evict_all();
  const auto waiting = chain("SA");
  tree_.hold(waiting);
  use("C");
  EXPECT_THAT(evict(1), ElementsAre("drop C"));
  EXPECT_EQ(tree_.evictions().freed, 1u);
  EXPECT_EQ(tree_.host_blocks(), 6u);
  tree_.release(waiting);
}

TEST_F(SmallHostTest, DoesNotEmptyTheHostForACopyThatOtherCopiesLeaveNoRoomFor) {
  use("TB");
  EXPECT_THAT(told(tree_.replicate(id_of("TB"), false)), ElementsAre("copy T", "copy TB"));
  use("TBC");
  use("TB");
  EXPECT_THAT(evict(2), ElementsAre("copy TBC", "drop TBC"));
  use("SA");  // 6 blocks; 3 are free, 2 are TBC's, the others copies
  EXPECT_THAT(told(tree_.replicate(id_of("SA"), true)), IsEmpty());
  EXPECT_EQ(tree_.match(chain("TBC")).host, 1u);
}

TEST_F(SmallHostTest, DoesNotEmptyTheHostForWhatCannotFitThere) {
  use("TB");
  evict_all();
  use("SAD");
  EXPECT_THAT(evict(3), ElementsAre("drop SAD"));  // 9 blocks with its ancestors
  EXPECT_EQ(tree_.match(chain("TB")).host, 2u);
}

TEST_F(SmallHostTest, ReplicatesIntoFreeRoomUnlessToldToMakeIt) {
  use("SA");
  evict_all();  // 6 of 7 blocks
  use("TB");
  EXPECT_THAT(told(tree_.replicate(id_of("TB"), false)), IsEmpty());
  EXPECT_THAT(told(tree_.replicate(id_of("TB"), true)),
              ElementsAre("release SA", "copy T", "copy TB"));
  EXPECT_THAT(told(tree_.replicate(id_of("TB"), true)), IsEmpty());  // it has one
}

TEST_F(SmallHostTest, LeavesHostNodesInUseAlone) {
  use("SA");
  evict_all();
  const auto used = chain("SA");
  tree_.hold(used);
  use("TC");
  EXPECT_THAT(evict_all(), ElementsAre("drop TC", "copy T", "drop T"));
  tree_.release(used);
}

}  // namespace
}  // namespace ragcache::controller
