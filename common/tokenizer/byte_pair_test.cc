#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "common/strings.h"
#include "common/tokenizer/byte_pair_encoder.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/testing.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> pieces_of(std::string_view text,
                                   PreTokenizerStyle style = PreTokenizerStyle::kSmolLm) {
  std::vector<std::string> pieces;
  PreTokenizer splitter(text, style);
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    pieces.emplace_back(piece);
  }
  return pieces;
}

TEST(PreTokenizer, CutsWordsWithTheirSpaceAndNumbersAlone) {
  EXPECT_THAT(pieces_of("Hello world, it's 2024!"),
              ElementsAre("Hello", " world", ",", " it", "'s", " ", "2", "0", "2", "4", "!"));
  EXPECT_THAT(pieces_of("I'VE they'd''ll"), ElementsAre("I", "'", "VE", " they", "'d", "''", "ll"));
  EXPECT_THAT(pieces_of("x²½ größer été"), ElementsAre("x", "²", "½", " größer", " été"));
}

TEST(PreTokenizer, LeavesTheLastOfSeveralSpacesToTheWordBehind) {
  EXPECT_THAT(pieces_of("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces_of("a\n\n\tb"), ElementsAre("a", "\n\n", "\t", "b"));
  EXPECT_THAT(pieces_of("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pieces_of("a\u00a0\u3000!"), ElementsAre("a", "\u00a0", "\u3000", "!"));
  // A number ends the text for the spaces before it.
  EXPECT_THAT(pieces_of("a   1"), ElementsAre("a", "   ", "1"));
}

TEST(PreTokenizer, GivesBackEveryByteOfRandomBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_bytes(random, random() % 64);
    for (const auto style : {PreTokenizerStyle::kGpt2, PreTokenizerStyle::kSmolLm,
                             PreTokenizerStyle::kLlama3, PreTokenizerStyle::kQwen2}) {
      std::string joined;
      for (const std::string& piece : pieces_of(text, style)) joined += piece;
      ASSERT_EQ(joined, text) << name_of(style);
    }
  }
}

// Merging as the definition has it: over and over the lowest rank, leftmost first.
std::vector<TokenId> merge_slowly(const std::map<std::pair<TokenId, TokenId>, size_t>& ranks,
                                  std::vector<TokenId> tokens) {
  for (;;) {
    size_t best_rank = SIZE_MAX;
    size_t best = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks.find({tokens[i], tokens[i + 1]});
      if (found != ranks.end() && found->second < best_rank) best_rank = found->second, best = i;
    }
    if (best_rank == SIZE_MAX) return tokens;
    tokens[best] = static_cast<TokenId>(256 + best_rank);
    tokens.erase(tokens.begin() + best + 1);
  }
}

TEST(BytePairEncoder, MergesAsTheDefinitionHasItAtEveryLength) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    BytePairEncoder encoder;
    for (int byte = 0; byte < 256; ++byte) encoder.set_byte(byte, byte);
    // Few letters and many merges, so that merges meet and chain.
    std::map<std::pair<TokenId, TokenId>, size_t> ranks;
    std::vector<TokenId> known = {'a', 'b', 'c'};
    for (size_t rank = 0; rank < 60; ++rank) {
      std::pair<TokenId, TokenId> pair;
      do {
        pair = {known[random() % known.size()], known[random() % known.size()]};
      } while (ranks.contains(pair));
      ranks[pair] = rank;
      known.push_back(static_cast<TokenId>(256 + rank));
      encoder.add_merge(pair.first, pair.second, known.back(), static_cast<uint32_t>(rank));
    }
    for (const size_t length : {0, 1, 2, 3, 17, 47, 48, 49, 50, 300}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 3);
      std::vector<TokenId> ids;
      encoder.encode(text, ids);
      ASSERT_EQ(ids, merge_slowly(ranks, {text.begin(), text.end()})) << text;
    }
  }
}

TEST(BytePairTokenizer, RefusesMetadataThatDoesNotFitTogether) {
  const auto error = [](auto change) {
    TinyVocabulary vocabulary;
    change(vocabulary);
    const auto tokenizer = vocabulary.load();
    return tokenizer.ok() ? "no error" : std::string(tokenizer.status().message());
  };
  EXPECT_THAT(error([](TinyVocabulary& v) { v.model = "bert"; }), HasSubstr("only gpt2"));
  EXPECT_THAT(error([](TinyVocabulary& v) { v.pre = "tekken"; }), HasSubstr("only smollm"));
  EXPECT_THAT(error([](TinyVocabulary& v) { v.types.pop_back(); }), HasSubstr("token_type"));
  EXPECT_THAT(error([](TinyVocabulary& v) { v.merges.push_back("ab"); }),
              HasSubstr("merges entry 2 is not two tokens"));
  EXPECT_THAT(error([](TinyVocabulary& v) { v.merges.push_back("b a"); }),
              HasSubstr("merges entry 2 uses a token that the vocabulary lacks"));
  EXPECT_THAT(error([](TinyVocabulary& v) { v.eos = 99; }), HasSubstr("eos_token_id is 99"));
  EXPECT_THAT(error([](TinyVocabulary& v) {
                v.tokens.push_back("a");
                v.types.push_back(1);
              }),
              HasSubstr("twice"));
  EXPECT_EQ(error([](TinyVocabulary&) {}), "no error");
}

TEST(BytePairTokenizer, HasAFingerprintOfWhatDecidesTheIds) {
  TinyVocabulary vocabulary;
  const Digest original = (*vocabulary.load())->fingerprint();
  EXPECT_EQ((*vocabulary.load())->fingerprint(), original);
  std::swap(vocabulary.merges[0], vocabulary.merges[1]);
  EXPECT_NE((*vocabulary.load())->fingerprint(), original);
}

TEST(BytePairTokenizer, PutsBosInFrontOnlyWhereTheModelSaysSo) {
  TinyVocabulary vocabulary;
  EXPECT_EQ((*vocabulary.load())->bos(), std::nullopt);
  vocabulary.add_bos = true;
  EXPECT_EQ((*vocabulary.load())->bos(), TokenId{0});
}

class DemoTokenizer : public ::testing::Test {
 protected:
  const std::shared_ptr<const Tokenizer> tokenizer_ = demo_tokenizer();
};

TEST_F(DemoTokenizer, EncodesSpellingsOfSpecialTokensAsText) {
  const std::string text = "a<|im_start|>b<|endoftext|><|im_end|>";
  const std::vector<TokenId> ids = tokenizer_->encode(text);
  for (const TokenId id : ids) EXPECT_FALSE(tokenizer_->is_special(id)) << id;
  EXPECT_EQ(tokenizer_->decode(ids), text);
  EXPECT_EQ(tokenizer_->special_token("<|im_start|>"), TokenId{1});
  EXPECT_EQ(tokenizer_->special_token("a"), std::nullopt);
}

TEST_F(DemoTokenizer, DecodesRandomBytesBackExceptThoseTheVocabularyLacks) {
  std::set<char> known;
  for (TokenId id = 0; id < tokenizer_->vocabulary_size(); ++id) {
    const std::string_view bytes = tokenizer_->token_bytes(id);
    if (bytes.size() == 1) known.insert(bytes[0]);
  }
  EXPECT_EQ(known.size(), 235u);  // none of the lacking bytes occurs in ordinary text
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text = random_bytes(random, random() % 200);
    const std::vector<TokenId> ids = tokenizer_->encode(text);
    std::erase_if(text, [&](char byte) { return !known.contains(byte); });
    ASSERT_EQ(tokenizer_->decode(ids), text);
  }
}

TEST_F(DemoTokenizer, EncodesOneHugeWordWithoutQuadraticWork) {
  // Quadratic merging would take very long here: the test's time limit is the assertion.
  std::string word;
  std::mt19937_64 random(7);
  while (word.size() < 500'000) word += static_cast<char>('a' + random() % 26);
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(word)), word);
  const std::string same(500'000, 'a');
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(same)), same);
}

TEST_F(DemoTokenizer, HasNoBytesForIdsOutOfRange) {
  EXPECT_EQ(tokenizer_->token_bytes(tokenizer_->vocabulary_size()), "");
  EXPECT_FALSE(tokenizer_->is_special(UINT32_MAX));
}

TEST(Utf8, TakesMaximalSubpartsOfInvalidSequences) {
  const auto read = [](std::string_view text) {
    const Utf8Char c = read_utf8(text, 0);
    return std::tuple(c.code_point, int{c.n_bytes}, c.valid, c.incomplete);
  };
  EXPECT_EQ(read("\u20ac"), std::tuple(U'\u20ac', 3, true, false));
  EXPECT_EQ(read("\U0010ffff"), std::tuple(U'\U0010ffff', 4, true, false));
  EXPECT_EQ(read("\xE2\x82"), std::tuple(kReplacementCharacter, 2, false, true));
  EXPECT_EQ(read("\xE2\x82 "), std::tuple(kReplacementCharacter, 2, false, false));
  EXPECT_EQ(read("\xC0\x80"), std::tuple(kReplacementCharacter, 1, false, false));      // overlong
  EXPECT_EQ(read("\xED\xA0\x80"), std::tuple(kReplacementCharacter, 1, false, false));  // surrogate
  EXPECT_EQ(read("\xF4\x90\x80\x80"), std::tuple(kReplacementCharacter, 1, false, false));
  EXPECT_EQ(read("\x80"), std::tuple(kReplacementCharacter, 1, false, false));
}

}  // namespace
}  // namespace ragcache
