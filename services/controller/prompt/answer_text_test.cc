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
  EXPECT_EQ(text.append(letters("abc")), "abc");
  EXPECT_EQ(text.append(letters("a")), "a");
  EXPECT_EQ(text.finish(), "");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, HoldsBackWhatMayBeginAStopString) {
  AnswerText text(tokenizer_, {"abc"});
  EXPECT_EQ(text.append(letters("ca")), "c");
  EXPECT_EQ(text.append(letters("b")), "");
  EXPECT_EQ(text.append(letters("b")), "abb");
  EXPECT_EQ(text.append(letters("ab")), "");
  EXPECT_EQ(text.finish(), "ab");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, CutsBeforeTheFirstStopStringHoweverTheTokensFall) {
  const std::string answer = "aabbcabab";
  for (size_t first = 0; first <= answer.size(); ++first) {
    for (size_t second = first; second <= answer.size(); ++second) {
      AnswerText text(tokenizer_, {"bab", "bca"});
      std::string seen = text.append(letters(answer.substr(0, first)));
      seen += text.append(letters(answer.substr(first, second - first)));
      seen += text.append(letters(answer.substr(second)));
      seen += text.finish();
      EXPECT_EQ(seen, "aab") << first << " " << second;
      EXPECT_TRUE(text.stopped());
    }
  }
}

}  // namespace
}  // namespace ragcache::controller
