#include "services/controller/prompt/answer_text.h"

#include <gtest/gtest.h>

#include "common/tokenizer/testing.h"

namespace ragcache::controller {
namespace {

class AnswerTextTest : public ::testing::Test {
 protected:
  std::vector<TokenId> letters(const std::string& text) const {
    std::vector<TokenId> ids;
    for (char letter : text) {
      for (TokenId id : tokenizer_->encode(std::string(1, letter))) ids.push_back(id);
    }
    return ids;
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = *TinyVocabulary().load();
};

TEST_F(AnswerTextTest, SendsEverythingAtOnceWithoutStopStrings) {
  AnswerText text(tokenizer_, {});
  EXPECT_EQ(text.append(letters("abc")).text, "abc");
  EXPECT_EQ(text.append(letters("a")).text, "a");
  EXPECT_EQ(text.finish().text, "");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, DropsTheSpaceThatBelongsToTheTemplate) {
  AnswerText text(tokenizer_, {}, /*drop_space=*/true);
  EXPECT_EQ(text.append({}).text, "");
  EXPECT_EQ(text.append(letters("  a")).text, " a");
  EXPECT_EQ(text.append(letters(" b")).text, " b");
}

TEST_F(AnswerTextTest, HoldsBackWhatMayBeginAStopString) {
  AnswerText text(tokenizer_, {"abc"});
  EXPECT_EQ(text.append(letters("ca")).text, "c");
  EXPECT_EQ(text.append(letters("b")).text, "");
  EXPECT_EQ(text.append(letters("b")).text, "abb");
  EXPECT_EQ(text.append(letters("ab")).text, "");
  EXPECT_EQ(text.finish().text, "ab");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, CutsBeforeTheFirstStopStringHoweverTheTokensFall) {
  const std::string answer = "aabbcabab";
  for (size_t first = 0; first <= answer.size(); ++first) {
    for (size_t second = first; second <= answer.size(); ++second) {
      AnswerText text(tokenizer_, {"bab", "bca"});
      std::string seen = text.append(letters(answer.substr(0, first))).text;
      seen += text.append(letters(answer.substr(first, second - first))).text;
      seen += text.append(letters(answer.substr(second))).text;
      seen += text.finish().text;
      EXPECT_EQ(seen, "aab") << first << " " << second;
      EXPECT_TRUE(text.stopped());
    }
  }
}

TEST_F(AnswerTextTest, TellsTokensWithTheTextThatTheyEndIn) {
  AnswerText text(tokenizer_, {"abc"});
  AnswerText::Piece piece = text.append(letters("ca"));
  EXPECT_EQ(piece.text, "c");
  EXPECT_EQ(piece.tokens, 1u);
  piece = text.append(letters("b"));
  EXPECT_EQ(piece.tokens, 0u);
  piece = text.append(letters("bc"));
  EXPECT_EQ(piece.text, "abbc");
  EXPECT_EQ(piece.tokens, 4u);
  // Of one token ("ab", id 7) a part is cut off: it is told all the same, what follows is not.
  AnswerText cut(tokenizer_, {"bc"});
  piece = cut.append(std::vector<TokenId>{3, 7, 5, 3});
  EXPECT_EQ(piece.text, "aa");
  EXPECT_EQ(piece.tokens, 2u);
  EXPECT_EQ(cut.finish().tokens, 0u);
  AnswerText open(tokenizer_, {"bc"});
  EXPECT_EQ(open.append(letters("ab")).tokens, 1u);
  EXPECT_EQ(open.finish().tokens, 1u);
}

// Bytes of a character in several tokens: none of them is told before the character is.
TEST_F(AnswerTextTest, HoldsBackTokensOfAnUnfinishedCharacter) {
  const auto tokenizer = demo_tokenizer();
  const std::string emoji = "\xF0\x9F\xA6\x94";
  const std::vector<TokenId> tokens = tokenizer->encode("x" + emoji);
  ASSERT_GT(tokens.size(), 2u);
  AnswerText text(tokenizer, {"!"});
  size_t told = 0;
  std::string seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const AnswerText::Piece piece = text.append(std::span(tokens).subspan(i, 1));
    seen += piece.text;
    told += piece.tokens;
    EXPECT_EQ(told, i + 1 == tokens.size() ? tokens.size() : 1u) << i;
  }
  EXPECT_EQ(seen, "x" + emoji);
  // A stop string that is the character: none of its tokens is told.
  AnswerText stopped(tokenizer, {emoji});
  told = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    told += stopped.append(std::span(tokens).subspan(i, 1)).tokens;
  }
  EXPECT_TRUE(stopped.stopped());
  EXPECT_EQ(told, 1u);
}

}  // namespace
}  // namespace ragcache::controller
