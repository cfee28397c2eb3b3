#include "services/controller/prompt/prompt_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tokenizer/testing.h"

namespace ragcache::controller {
namespace {

class PromptPlanTest : public ::testing::Test {
 protected:
  PromptDocument document(const std::string& title, const std::string& text) const {
    PromptDocument made;
    made.tokens = format_->document(title, text);
    made.token_digest = digest_of_tokens(made.tokens);
    return made;
  }
  std::shared_ptr<const PromptPlan> plan(const std::string& system,
                                         std::vector<PromptDocument> documents,
                                         const std::string& question,
                                         size_t cached_documents = 100) const {
    return *make_prompt_plan(*format_, root_, system, std::move(documents), cached_documents,
                             {{ChatRole::kUser, question}});
  }

  static std::vector<TokenId> prompt_of(const PromptPlan& plan) {
    std::vector<TokenId> tokens;
    for (const auto& segment : plan.segment_tokens) {
      tokens.insert(tokens.end(), segment.begin(), segment.end());
    }
    tokens.insert(tokens.end(), plan.tail.begin(), plan.tail.end());
    return tokens;
  }

  const SegmentId root_ = SegmentId::root(sha256("model"), "scope");
  const std::shared_ptr<const Tokenizer> tokenizer_ = demo_tokenizer();
  const std::shared_ptr<const PromptFormat> format_ = *PromptFormat::create(tokenizer_);
};

TEST_F(PromptPlanTest, CutsAtTheDocumentsAndKeepsTheQuestionInTheTail) {
  const auto made = plan("Be brief.", {document("A", "first"), document("B", "second")}, "Why?");
  ASSERT_EQ(made->chain.size(), 3u);
  std::string prompt;
  uint32_t tokens = 0;
  for (size_t i = 0; i < made->chain.size(); ++i) {
    EXPECT_EQ(made->chain[i].tokens, made->segment_tokens[i].size());
    tokens += made->chain[i].tokens;
    prompt += tokenizer_->decode(made->segment_tokens[i]);
  }
  EXPECT_EQ(made->prefix_tokens(), tokens);
  EXPECT_EQ(made->prompt_tokens(), tokens + made->tail.size());
  EXPECT_EQ(prompt + tokenizer_->decode(made->tail),
            "<|im_start|>system\nBe brief.\n\nA\nfirst\n\nB\nsecond<|im_end|>\n"
            "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(PromptPlanTest, KeepsThePromptWithoutSegments) {
  const auto whole = plan("S", {document("A", "1"), document("B", "2")}, "x");
  const auto flat = without_segments(*whole);
  EXPECT_TRUE(flat->chain.empty());
  EXPECT_EQ(prompt_of(*flat), prompt_of(*whole));
  EXPECT_EQ(flat->prompt_tokens(), whole->prompt_tokens());
}

TEST_F(PromptPlanTest, KeepsThePromptWhenOnlyLeadingDocumentsAreCached) {
  const std::vector<PromptDocument> documents{document("A", "1"), document("B", "2"),
                                              document("C", "3")};
  const auto all = plan("S", documents, "x");
  for (size_t cached = 1; cached <= 3; ++cached) {
    const auto some = plan("S", documents, "x", cached);
    ASSERT_EQ(some->chain.size(), 1 + cached);
    for (size_t i = 0; i <= cached; ++i) EXPECT_EQ(some->chain[i].id, all->chain[i].id);
    EXPECT_EQ(prompt_of(*some), prompt_of(*all));
  }
}

TEST_F(PromptPlanTest, SharesIdsExactlyAsFarAsTheTextIsTheSame) {
  const auto base = plan("S", {document("A", "1"), document("B", "2")}, "x");
  const auto other_question = plan("S", {document("A", "1"), document("B", "2")}, "y");
  const auto replaced = plan("S", {document("A", "1"), document("B", "two")}, "x");
  const auto swapped = plan("S", {document("B", "2"), document("A", "1")}, "x");
  const auto other_system = plan("T", {document("A", "1"), document("B", "2")}, "x");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(base->chain[i].id, other_question->chain[i].id);
  EXPECT_EQ(base->chain[1].id, replaced->chain[1].id);
  EXPECT_NE(base->chain[2].id, replaced->chain[2].id);
  EXPECT_EQ(base->chain[0].id, swapped->chain[0].id);
  EXPECT_NE(base->chain[1].id, swapped->chain[1].id);
  EXPECT_NE(base->chain[2].id, swapped->chain[2].id);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(base->chain[i].id, other_system->chain[i].id);
}

TEST_F(PromptPlanTest, RefusesADigestOfOtherTokens) {
  PromptDocument forged = document("A", "one");
  forged.tokens.back() += 1;
  const auto made = make_prompt_plan(*format_, root_, "S", {forged}, 100, {{ChatRole::kUser, "x"}});
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr("document 1"));
}

TEST_F(PromptPlanTest, TakesRawPartsAsTheyAreEachOnItsOwn) {
  const auto made = *make_raw_plan(*tokenizer_, root_, {"<|im_start|>", "one"}, "two");
  ASSERT_EQ(made->chain.size(), 2u);
  EXPECT_EQ(made->segment_tokens[0], tokenizer_->encode("<|im_start|>"));
  EXPECT_GT(made->segment_tokens[0].size(), 1u);  // not the special token
  EXPECT_EQ(made->tail, tokenizer_->encode("two"));
  EXPECT_EQ(made->chain[0].id,
            SegmentId::derive(root_, digest_of_tokens(tokenizer_->encode("<|im_start|>"))));
  // The same ids, however they come, are the same segments.
  const auto ids = *make_raw_plan(*tokenizer_, root_, {made->segment_tokens[0], "one"}, "two");
  EXPECT_EQ(ids->chain[1].id, made->chain[1].id);
  EXPECT_TRUE((*make_raw_plan(*tokenizer_, root_, {}, "two"))->chain.empty());
}

TEST_F(PromptPlanTest, BeginsRawTextWithBosIfThatIsTheModelsRule) {
  TinyVocabulary vocabulary;
  vocabulary.add_bos = true;
  const auto tokenizer = *vocabulary.load();
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ((*make_raw_plan(*tokenizer, root_, {}, "ab"))->tail, (Tokens{0, 7}));
  const auto two = *make_raw_plan(*tokenizer, root_, {"ab"}, "ab");
  EXPECT_EQ(two->segment_tokens[0], (Tokens{0, 7}));
  EXPECT_EQ(two->tail, (Tokens{7}));
  const auto given = *make_raw_plan(*tokenizer, root_, {Tokens{7}}, "ab");
  EXPECT_EQ(given->segment_tokens[0], (Tokens{7}));
  EXPECT_EQ(given->tail, (Tokens{7}));
}

TEST_F(PromptPlanTest, RefusesRawPartsWithoutTokensOrOutsideTheVocabulary) {
  const auto message = [&](std::vector<RawPart> segments, RawPart tail) {
    return std::string(
        make_raw_plan(*tokenizer_, root_, std::move(segments), std::move(tail)).status().message());
  };
  EXPECT_EQ(message({"a", ""}, "b"), "segments[1]: has no tokens");
  EXPECT_EQ(message({"a"}, ""), "prompt: has no tokens");
  EXPECT_EQ(message({"a"}, std::vector<TokenId>{49152}),
            "prompt: has the token id 49152, the model's vocabulary has 49152");
}

}  // namespace
}  // namespace ragcache::controller
