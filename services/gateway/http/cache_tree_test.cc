#include "services/gateway/http/cache_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <sstream>

#include "common/random.h"
#include "common/strings.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

pb::CacheNode node(const std::string& id, const std::string& parent, const std::string& document,
                   pb::Residence device, pb::Residence host) {
  pb::CacheNode node;
  node.set_segment_id(id);
  node.set_parent_id(parent);
  node.set_document_id(document);
  node.set_tokens(10);
  node.set_device(device);
  node.set_host(host);
  return node;
}

TEST(CacheTree, IsALineANodeBelowItsParent) {
  pb::GetCacheTreeResponse tree;
  tree.set_total_nodes(7);
  constexpr auto kNone = pb::RESIDENCE_NONE;
  constexpr auto kPending = pb::RESIDENCE_PENDING;
  constexpr auto kReady = pb::RESIDENCE_READY;
  *tree.add_nodes() = node("\x01\x02\x03\x04\x05", "", "", kReady, kNone);
  *tree.add_nodes() = node("other root", "", "", kReady, kReady);
  *tree.add_nodes() = node("a", "\x01\x02\x03\x04\x05", "doc-1", kReady, kPending);
  *tree.add_nodes() = node("b", "\x01\x02\x03\x04\x05", "doc-2", kNone, kReady);
  *tree.add_nodes() = node("c", "a", "doc\n3", kPending, kReady);
  *tree.add_nodes() = node("\xff\xfe\xfd\xfc", "a", "", kPending, kNone);
  tree.mutable_nodes(2)->set_users(3);
  tree.mutable_nodes(2)->set_priority(0.123456789);
  tree.mutable_nodes(4)->set_kept(true);
  EXPECT_EQ(tree_text(tree),
            "6 of 7 nodes\n"
            "root 01020304  10 tokens  D  0 users  priority 0\n"
            "  doc-1  10 tokens  Dh  3 users  priority 0.1235\n"
            "    doc?3  10 tokens  dH  0 users  pinned  priority 0\n"
            "    segment fffefdfc  10 tokens  d  0 users  priority 0\n"
            "  doc-2  10 tokens  H  0 users  priority 0\n"
            "root 6f746865  10 tokens  DH  0 users  priority 0\n");
}

TEST(CacheTree, OfNothingIsStillATree) {
  const pb::GetCacheTreeResponse tree;
  EXPECT_EQ(tree_text(tree), "0 of 0 nodes\n");
  EXPECT_EQ(tree_json(tree).dump(), R"({"total_nodes":0,"nodes":[]})");
  EXPECT_EQ(tree_dot(tree), "digraph cache {\n  node [shape=box];\n}\n");
}

TEST(CacheTree, MayBeVeryDeep) {
  pb::GetCacheTreeResponse tree;
  for (int i = 0; i < 3000; ++i) {
    *tree.add_nodes() = node(std::to_string(i), i == 0 ? "" : std::to_string(i - 1), "x",
                             pb::RESIDENCE_READY, pb::RESIDENCE_NONE);
  }
  EXPECT_NE(tree_text(tree).find("\n" + std::string(2 * 2999, ' ') + "x  "), std::string::npos);
}

// Graphviz' grammar for what is written here: quoted strings end at the first '"' without a '\'.
TEST(CacheTree, IsValidGraphvizWhateverDocumentsAreCalled) {
  const std::regex statement(
      R"re(  "[0-9a-f]+" (\[label="([^"\\]|\\.)*"(, peripheries=2)?\]|-> "[0-9a-f]+");)re");
  const uint64_t seed = random_bits();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937_64 random(seed);
  pb::GetCacheTreeResponse tree;
  constexpr std::string_view kCharacters = "a\"\\\n{}<>|;é";
  for (int i = 0; i < 200; ++i) {
    std::string name;
    for (uint64_t n = random() % 12; n > 0; --n) {
      name += kCharacters[random() % kCharacters.size()];
    }
    *tree.add_nodes() = node(std::to_string(i), i == 0 ? "" : std::to_string(random() % i), name,
                             pb::RESIDENCE_READY, pb::RESIDENCE_NONE);
    tree.mutable_nodes(i)->set_kept(random() % 2 == 0);
  }
  std::istringstream lines(tree_dot(tree));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "digraph cache {");
  std::getline(lines, line);
  size_t statements = 0;
  while (std::getline(lines, line) && line != "}") {
    ++statements;
    EXPECT_TRUE(std::regex_match(line, statement)) << line;
  }
  EXPECT_EQ(line, "}");
  EXPECT_EQ(statements, 200 + 199);
}

}  // namespace
}  // namespace ragcache::gateway
