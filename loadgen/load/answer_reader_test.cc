#include "loadgen/load/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace ragcache::loadgen {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class AnswerReaderTest : public testing::Test {
 protected:
  // Each event a millisecond after the one before, from 1.
  absl::Status take(std::initializer_list<const char*> events) {
    for (const char* event : events) {
      if (absl::Status status = reader_.take(event, milliseconds(++now_ms_)); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  Outcome outcome_;
  AnswerReader reader_{outcome_};
  int now_ms_ = 0;
};

TEST_F(AnswerReaderTest, ReadsRagCachesChat) {
  ASSERT_TRUE(
      take(
          {
              R"({"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},)"
              R"("logprobs":null,"finish_reason":null}],"usage":null,)"
              R"("documents":[{"id":"b","title":"B","score":0.5,"rank":1},{"id":"a","rank":2}]})",
              R"({"choices":[{"index":0,"delta":{"content":"Bec"},"finish_reason":null}]})",
              R"({"choices":[{"index":0,"delta":{"content":"ause \"\u00fc\"\n"}}]})",
              R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})",
              R"({"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102,)"
              R"("prompt_tokens_details":{"cached_tokens":64,"cached_documents":2}},)"
              R"("timings":{"search_ms":1.5,"queue_ms":2,"ttft_ms":30.0,"scheduling_us":17.25}})",
              "[DONE]",
          })
          .ok());
  EXPECT_TRUE(reader_.done());
  EXPECT_EQ(outcome_.text, "Because \"\u00fc\"\n");
  EXPECT_THAT(outcome_.documents, ElementsAre("b", "a"));
  EXPECT_EQ(outcome_.first_token, Duration(milliseconds(2)));
  EXPECT_EQ(outcome_.end, milliseconds(6));
  EXPECT_EQ(outcome_.prompt_tokens, 100u);
  EXPECT_EQ(outcome_.cached_tokens, 64u);
  EXPECT_EQ(outcome_.cached_documents, 2u);
  EXPECT_EQ(outcome_.completion_tokens, 2u);
  EXPECT_EQ(outcome_.search_ms, 1.5);
  EXPECT_EQ(outcome_.queue_ms, 2);
  EXPECT_EQ(outcome_.scheduling_us, 17.25);
}

TEST_F(AnswerReaderTest, ReadsLlamaCppsCompletionsAndPassesOverWhatItDoesNotKnow) {
  ASSERT_TRUE(
      take(
          {
              R"({"choices": [{"text": "\u00e9t", "index": 0, "logprobs": null}], "timings": null})",
              R"({"choices": [{"text": "", "finish_reason": "length"}],)"
              R"( "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": null},)"
              R"( "timings": {"cache_n": 7, "prompt_n": 2, "prompt_ms": 1.25, "search_ms": "none"},)"
              R"( "text": "x", "documents": 5, "choices2": [[{"delta": {"content": "y"}}]], "e": [1, {}]})",
              "[DONE]",
          })
          .ok());
  EXPECT_EQ(outcome_.text, "\u00e9t");
  EXPECT_EQ(outcome_.first_token, Duration(milliseconds(1)));
  EXPECT_EQ(outcome_.cached_tokens, 7u);
  EXPECT_FALSE(outcome_.search_ms.has_value());
  EXPECT_TRUE(outcome_.documents.empty());
}

TEST_F(AnswerReaderTest, TakesTheEndOfAnAnswerWithoutTextForItsFirstToken) {
  ASSERT_TRUE(take({R"({"choices":[{"delta":{"content":""},"finish_reason":null}]})",
                    R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"})
                  .ok());
  EXPECT_EQ(outcome_.first_token, Duration(milliseconds(2)));
  EXPECT_FALSE(reader_.done());
}

TEST_F(AnswerReaderTest, NamesWhatIsNoChunk) {
  for (const char* bad : {"", "{", R"({"choices":[)", "7", "[]", "null", "\"x\"", "{} {}"}) {
    EXPECT_THAT(std::string(take({bad}).message()), testing::StartsWith("malformed: ")) << bad;
  }
}

TEST_F(AnswerReaderTest, PassesAnErrorOfTheServerOn) {
  EXPECT_EQ(take({R"({"error":{"message":"worker is gone","type":"x"}})"}).message(),
            "server: worker is gone");
  EXPECT_EQ(take({R"({"error":"full"})"}).message(), "server: full");
  EXPECT_EQ(take({R"({"error":{"code":5}})"}).message(), "server: no message");
  EXPECT_TRUE(take({R"({"error":null,"choices":[]})"}).ok());
}

}  // namespace
}  // namespace ragcache::loadgen
