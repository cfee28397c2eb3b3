#include "common/tokenizer/incremental_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "common/tokenizer/testing.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = read_utf8(text, i);
    if (!character.valid) return false;
    i += character.n_bytes;
  }
  return true;
}

// A text's bytes with U+FFFD for what is not UTF-8, all at once.
std::string repaired(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = read_utf8(text, i);
    append_utf8(out, character.code_point);
    i += character.n_bytes;
  }
  return out;
}

TEST(IncrementalDecoder, HoldsBackHalfACharacter) {
  const auto tokenizer = demo_tokenizer();
  const std::vector<TokenId> ids = tokenizer->encode("\U0001F9E9");
  ASSERT_GT(ids.size(), 1u) << "the character must be split for this test";
  IncrementalDecoder decoder(tokenizer);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "\U0001F9E9");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(IncrementalDecoder, EndsAnUnfinishedCharacterWithTheReplacementCharacter) {
  const auto tokenizer = demo_tokenizer();
  std::vector<TokenId> ids = tokenizer->encode("ok \U0001F9E9");
  ids.pop_back();
  IncrementalDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(ids), "ok ");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(IncrementalDecoder, GivesNoTextForSpecialTokens) {
  const auto tokenizer = demo_tokenizer();
  std::vector<TokenId> ids = tokenizer->encode("yes");
  ids.push_back(*tokenizer->special_token("<|im_end|>"));
  IncrementalDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(ids), "yes");
}

TEST(IncrementalDecoder, GivesTheSameTextInWhateverPortionsTokensCome) {
  const auto tokenizer = demo_tokenizer();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    // Half the rounds decode text, half any tokens at all: a model may say anything.
    std::vector<TokenId> ids;
    if (round % 2 == 0) {
      ids = tokenizer->encode(random_bytes(random, 40));
    } else {
      for (int i = 0; i < 40; ++i) ids.push_back(17 + random() % (49152 - 17));
    }
    IncrementalDecoder decoder(tokenizer);
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      const size_t n = std::min<size_t>(random() % 4, ids.size() - i);
      const std::string portion = decoder.push(std::span(ids).subspan(i, n));
      ASSERT_TRUE(is_valid_utf8(portion));
      text += portion;
      i += n;
    }
    text += decoder.finish();
    ASSERT_EQ(text, repaired(tokenizer->decode(ids)));
  }
}

}  // namespace
}  // namespace ragcache
