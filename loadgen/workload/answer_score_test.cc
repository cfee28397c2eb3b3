#include "loadgen/workload/answer_score.h"

#include <gtest/gtest.h>

namespace ragcache::loadgen {
namespace {

// Expected values by SQuAD's evaluate-v1.1.py.
TEST(AnswerScore, NormalizesAsSquadDoes) {
  EXPECT_EQ(normalized_answer("  The   Great\tSichuan earthquake. "), "great sichuan earthquake");
  EXPECT_EQ(normalized_answer("69,197"), "69197");
  EXPECT_EQ(normalized_answer("an A-Team's theory"), "ateams theory");
  EXPECT_EQ(normalized_answer("ÉCOLE\u00a0Polytechnique"), "école polytechnique");
  EXPECT_EQ(normalized_answer("rock–the–boat"), "rock– –boat");
  EXPECT_EQ(normalized_answer("$5 @ 10%"), "5 10");
  EXPECT_EQ(normalized_answer("The a an"), "");
}

TEST(AnswerScore, CountsCommonWordsAsOftenAsBothHaveThem) {
  EXPECT_EQ(score_answer("the cat", {"A cat!"}).exact, 1);
  EXPECT_EQ(score_answer("the cat", {"A cat!"}).f1, 1);
  // Two words are common, of four and of three.
  const AnswerScore score = score_answer("on May 12 2008", {"May 12, 2009"});
  EXPECT_EQ(score.exact, 0);
  EXPECT_DOUBLE_EQ(score.f1, 4.0 / 7);
  EXPECT_DOUBLE_EQ(score_answer("x x x y", {"x x z"}).f1, 4.0 / 7);
  EXPECT_EQ(score_answer("dog", {"cat"}).f1, 0);
}

TEST(AnswerScore, TakesTheRightAnswerThatFitsBest) {
  const AnswerScore score = score_answer("14 December 1972", {"1972", "December 1972", "May"});
  EXPECT_EQ(score.exact, 0);
  EXPECT_DOUBLE_EQ(score.f1, 0.8);
  EXPECT_EQ(score_answer("may", {"1972", "May"}).exact, 1);
  EXPECT_EQ(score_answer("anything", {}).f1, 0);
  EXPECT_EQ(score_answer("", {"x"}).f1, 0);
}

}  // namespace
}  // namespace ragcache::loadgen
