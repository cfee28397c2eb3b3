#include "loadgen/workload/substitute_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/model/model_files.h"
#include "common/strings.h"
#include "loadgen/workload/prompt_text.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/testing.h"

namespace ragcache::loadgen {
namespace {

using ::testing::HasSubstr;

class SubstituteTextTest : public ::testing::Test {
 protected:
  const std::string model_ =
      std::string(std::getenv("RAG_DEPS_DIR")) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
};

TEST_F(SubstituteTextTest, HasTheTokensItShouldHaveOnItsOwnAndInAPrompt) {
  const TokenCounter count = *token_counter(model_);
  const SubstituteText substitutes = *SubstituteText::create(count);
  const auto format = *(*ModelFiles::open(model_))->prompt_format("auto");
  constexpr uint64_t kSeed = 2026;
  SCOPED_TRACE(str_cat("seed ", kSeed));
  Random random(kSeed);
  for (int i = 0; i < 200; ++i) {
    const auto tokens = static_cast<uint32_t>(1 + random() % 900);
    const std::string key = str_cat("key/", random());
    EXPECT_EQ(count(substitutes.text(key, tokens)), tokens);
    const CorpusDocument document = substitutes.document(key, tokens + 8);
    EXPECT_EQ(document.tokens, tokens + 8);
    EXPECT_EQ(format->document(document.title, document.text).size(), tokens + 8);
    // Parts of a question are put together by a space.
    EXPECT_EQ(count(str_cat(substitutes.text(key, tokens), " ", substitutes.text("other", 7))),
              tokens + 7);
  }
}

TEST_F(SubstituteTextTest, CountsDocumentsAsAPromptHasThem) {
  const TokenCounter count = *token_counter(model_);
  const auto format = *(*ModelFiles::open(model_))->prompt_format("auto");
  EXPECT_EQ(count(document_text("Abacus", " An abacus\nis")),
            format->document("Abacus", " An abacus\nis").size());
}

TEST(SubstituteText, IsTheKeysAloneAndBeginsAlikeAtAnyLength) {
  const SubstituteText substitutes = *SubstituteText::create(count_words);
  const std::string text = substitutes.text("passage/7", 50);
  EXPECT_EQ(text, SubstituteText::create(count_words)->text("passage/7", 50));
  EXPECT_NE(text, substitutes.text("passage/8", 50));
  EXPECT_TRUE(substitutes.text("passage/7", 60).starts_with(text + " "));
  EXPECT_EQ(substitutes.text("passage/7", 0), "");
}

TEST(SubstituteText, HasADocumentOfOneWordAtLeast) {
  const auto count = [](std::string_view text) {
    return count_words(text) + (text.starts_with("\n\n") ? 3 : 0);
  };
  const SubstituteText substitutes = *SubstituteText::create(count);
  EXPECT_EQ(count_words(substitutes.document("a", 10).text), 7u);
  EXPECT_EQ(count_words(substitutes.document("a", 2).text), 1u);
  EXPECT_EQ(substitutes.document("a", 2).tokens, 4u);
}

TEST(SubstituteText, WantsATokenizerThatKnowsWords) {
  const auto count = [](std::string_view text) { return static_cast<uint32_t>(text.size()); };
  const auto status = SubstituteText::create(count).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer has 0 of"));
}

TEST(PromptText, PutsDocumentsBeforeTheQuestion) {
  const CorpusDocument first{.id = "1", .title = "T", .text = "one"};
  const CorpusDocument second{.id = "2", .text = "two"};
  EXPECT_EQ(compose_prompt({&first, &second}, "why?"), "T\none\n\ntwo\n\nwhy?");
  EXPECT_EQ(compose_prompt({}, "why?"), "why?");
}

}  // namespace
}  // namespace ragcache::loadgen
