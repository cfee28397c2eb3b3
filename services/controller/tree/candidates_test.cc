#include "services/controller/tree/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace ragcache::controller {
namespace {

// More nodes than one slab of the pool has.
constexpr uint32_t kNodes = 40'000;

class CandidatesTest : public testing::Test {
 protected:
  ~CandidatesTest() override {
    for (TreeNode* node : nodes_) pool_.destroy(*node);
  }

  // Ids that share their first bytes, priorities that few share: ties of every kind.
  TreeNode& make(std::mt19937& random) {
    TreeNode& node = pool_.make();
    const uint32_t bits = random();
    node.id.bytes[3] = bits & 1;
    node.id.bytes[4] = (bits >> 1) & 7;
    for (size_t i = 0; i < 4; ++i) {
      node.id.bytes[12 + i] = static_cast<uint8_t>(nodes_.size() >> (8 * i));
    }
    node.priority = (bits >> 4) % 5;
    node.expected = (bits >> 8) % 7 == 0;
    node.kept = (bits >> 16) % 11 == 0;
    nodes_.push_back(&node);
    return node;
  }

  static auto order_of(const TreeNode& node) {
    return std::tuple(Candidates::rank_of(node), node.priority, node.id);
  }
  static bool before(const TreeNode* a, const TreeNode* b) { return order_of(*a) < order_of(*b); }

  NodePool pool_;
  std::vector<TreeNode*> nodes_;
};

TEST_F(CandidatesTest, LeaveInOrderOfRankPriorityAndId) {
  std::mt19937 random(1);
  Candidates candidates(pool_);
  std::vector<TreeNode*> in;
  for (uint32_t i = 0; i < kNodes; ++i) {
    candidates.insert(make(random));
    in.push_back(nodes_.back());
    if (i % 3 != 0) continue;
    const size_t leaving = random() % in.size();
    candidates.erase(*in[leaving]);
    EXPECT_FALSE(candidates.contains(*in[leaving]));
    in[leaving] = in.back();
    in.pop_back();
  }
  ASSERT_TRUE(candidates.ordered());
  for (TreeNode* node : in) node->priority = -node->priority;
  EXPECT_FALSE(candidates.ordered());
  candidates.reorder();
  ASSERT_TRUE(candidates.ordered());

  std::sort(in.begin(), in.end(), before);
  for (TreeNode* node : in) {
    ASSERT_EQ(&candidates.least(), node);
    candidates.erase(*node);
  }
  EXPECT_TRUE(candidates.empty());
}

}  // namespace
}  // namespace ragcache::controller
