#include "loadgen/run/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Workload workload(bool retrieval) {
  Workload workload{.name = "w",
                    .documents = {{"a", "A", "of ants", 2}, {"b", "", "of bees", 2}},
                    .retrieval = retrieval};
  workload.requests.push_back({.question = "why?", .max_tokens = 7});
  if (!retrieval) workload.requests[0].documents = {1, 0};
  return workload;
}

absl::StatusOr<std::vector<CorpusDocument>> no_search(const std::string& query) {
  ADD_FAILURE() << query;
  return absl::InternalError("");
}

absl::StatusOr<std::vector<CorpusDocument>> find_cats(const std::string& query) {
  return std::vector<CorpusDocument>{{.id = "c", .title = "C", .text = "of cats, " + query}};
}

TEST(Prompts, LeaveDocumentsToTheServer) {
  const auto prompts = make_prompts(workload(true), Retrieval::kServer, 3, no_search);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const auto& prompt = std::get<ChatPrompt>(prompts->requests[0].prompt);
  EXPECT_EQ(prompts->requests[0].max_tokens, 7u);
  EXPECT_EQ(prompt.text, "why?");
  EXPECT_EQ(prompt.retrieval->top_k, 3u);
  EXPECT_THAT(prompt.retrieval->documents, IsEmpty());
  EXPECT_THAT(prompts->documents[0], IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(
      make_prompts(workload(false), Retrieval::kServer, 3, no_search).status()));
}

TEST(Prompts, NameDocumentsThatAreKnownOrFound) {
  auto prompts = make_prompts(workload(false), Retrieval::kNamed, 1, no_search);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(std::get<ChatPrompt>(prompts->requests[0].prompt).retrieval->documents,
              ElementsAre("b", "a"));
  EXPECT_THAT(prompts->documents[0], ElementsAre("b", "a"));

  prompts = make_prompts(workload(true), Retrieval::kNamed, 1, find_cats);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(std::get<ChatPrompt>(prompts->requests[0].prompt).retrieval->documents,
              ElementsAre("c"));
}

TEST(Prompts, WriteDocumentsBeforeTheQuestion) {
  auto prompts = make_prompts(workload(false), Retrieval::kBefore, 1, no_search);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const auto* prompt = &std::get<ChatPrompt>(prompts->requests[0].prompt);
  EXPECT_FALSE(prompt->retrieval);
  EXPECT_LT(prompt->text.find("of bees"), prompt->text.find("of ants"));
  EXPECT_THAT(prompt->text, testing::EndsWith("why?"));
  EXPECT_THAT(prompts->documents[0], ElementsAre("b", "a"));

  prompts = make_prompts(workload(true), Retrieval::kBefore, 1, find_cats);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  prompt = &std::get<ChatPrompt>(prompts->requests[0].prompt);
  EXPECT_THAT(prompt->text, HasSubstr("of cats, why?"));
}

TEST(Prompts, HoldTheLengthsOfARecording) {
  Workload recorded = workload(false);
  const auto ignores_eos = [&recorded] {
    return make_prompts(recorded, Retrieval::kNamed, 1, no_search)->requests[0].ignore_eos;
  };
  EXPECT_FALSE(ignores_eos());
  recorded.substituted = true;
  EXPECT_TRUE(ignores_eos());
}

TEST(Prompts, TellWhyNothingWasFound) {
  const auto fail = [](const std::string&) -> absl::StatusOr<std::vector<CorpusDocument>> {
    return absl::UnavailableError("no index");
  };
  EXPECT_TRUE(
      absl::IsUnavailable(make_prompts(workload(true), Retrieval::kNamed, 1, fail).status()));
}

}  // namespace
}  // namespace ragcache::loadgen
