#include <gtest/gtest.h>

#include <set>

#include "common/hash.h"
#include "common/ids.h"

namespace ragcache {
namespace {

TEST(Sha256, MatchesThePublishedVectors) {
  // FIPS 180-4 examples.
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, DigestsTokensAsLittleEndianWords) {
  const std::vector<uint32_t> tokens = {1, 0x01020304};
  EXPECT_EQ(digest_of_tokens(tokens),
            sha256(std::string_view("\x01\x00\x00\x00\x04\x03\x02\x01", 8)));
}

TEST(SegmentId, DependsOnEveryPartOfItsChain) {
  const Digest model = sha256("model");
  const Digest a = sha256("a");
  const Digest b = sha256("b");
  const SegmentId root = SegmentId::root(model, "scope");
  std::set<SegmentId> ids = {
      root,
      SegmentId::root(model, "other"),
      SegmentId::root(sha256("other model"), "scope"),
      SegmentId::derive(root, a),
      SegmentId::derive(root, b),
      SegmentId::derive(SegmentId::derive(root, a), b),
      SegmentId::derive(SegmentId::derive(root, b), a),
      SegmentId::derive(SegmentId::derive(root, a), a),
  };
  EXPECT_EQ(ids.size(), 8u);
}

TEST(SegmentId, ParsesWhatItPrintsAndRefusesOtherLengths) {
  const SegmentId id = SegmentId::root(sha256("model"), "");
  EXPECT_EQ(*SegmentId::parse(id.as_bytes()), id);
  EXPECT_FALSE(SegmentId::parse("short").ok());
  EXPECT_FALSE(SegmentId::parse(std::string(17, 'x')).ok());
}

}  // namespace
}  // namespace ragcache
