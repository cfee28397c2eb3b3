#include "services/controller/validate.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ragcache::controller {
namespace {

constexpr uint32_t kVocabulary = 100;

v1::AnswerRequest chat() {
  v1::AnswerRequest request;
  request.set_request_id("r");
  request.add_messages()->set_role(v1::ROLE_USER);
  request.mutable_messages(0)->set_content("Why?");
  request.mutable_sampling()->set_top_p(1);
  return request;
}

v1::AnswerRequest raw() {
  v1::AnswerRequest request = chat();
  request.clear_messages();
  request.mutable_raw_prompt()->add_segments()->set_text("a");
  request.mutable_raw_prompt()->mutable_tail()->mutable_tokens()->add_ids(1);
  return request;
}

TEST(Validate, AcceptsWhatIsAtItsBounds) {
  v1::AnswerRequest request = chat();
  request.set_n(16);
  request.set_logprobs(true);
  request.set_top_logprobs(20);
  request.add_stop(std::string(256, 'x'));
  request.add_stop_token_ids(kVocabulary - 1);
  types::v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(2);
  sampling.set_min_p(1);
  sampling.set_presence_penalty(-2);
  sampling.set_frequency_penalty(2);
  sampling.set_repetition_penalty(2);
  types::v1::LogitBias& bias = *sampling.add_logit_bias();
  bias.set_token(kVocabulary - 1);
  bias.set_bias(-100);
  EXPECT_TRUE(validate(request, kVocabulary).ok()) << validate(request, kVocabulary);
  EXPECT_TRUE(validate(raw(), kVocabulary).ok());
  // What every gateway's `max_top_k` may allow.
  v1::Retrieval& retrieval = *request.mutable_retrieval();
  retrieval.set_enabled(true);
  retrieval.set_top_k(1000);
  EXPECT_TRUE(validate(request, kVocabulary).ok()) << validate(request, kVocabulary);
  for (int i = 0; i < 1000; ++i) retrieval.add_document_ids()->push_back('d');
  EXPECT_TRUE(validate(request, kVocabulary).ok()) << validate(request, kVocabulary);
}

TEST(Validate, NamesFieldAndBoundOfWhatIsWrong) {
  const auto repeat = [](int times, const std::string& text) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
  };
  // What is merged into a good request, and what is said of it.
  const std::vector<std::pair<std::string, std::string>> chats = {
      {"request_id: ''", "request_id: must not be empty"},
      {"tenant: '" + repeat(257, "t") + "'", "tenant: is 257 bytes, at most 256"},
      {"messages { role: ROLE_USER }", "messages: the last one must be the user's and not empty"},
      {"messages { role: ROLE_USER content: '" + repeat(4 << 20, "x") + "' }",
       "messages: the prompt's texts are 4194308 bytes, at most 4194304"},
      {"messages { role: ROLE_SYSTEM }", "messages[1].role: only the first may be system"},
      {"messages { }", "messages[1].role: must be system, user or assistant"},
      {repeat(1024, "messages { role: ROLE_USER content: 'x' }"),
       "messages: has 1025 items, at most 1024"},
      {"raw_prompt { }", "raw_prompt: comes instead of messages"},
      {"retrieval { enabled: true }", "rag.top_k: is 0, must be from 1 to 1000"},
      {"retrieval { enabled: true top_k: 1001 }", "rag.top_k: is 1001"},
      {"retrieval { enabled: true document_ids: 'd' filter { conditions { } } }",
       "rag.filter: is for searches"},
      {"retrieval { " + repeat(1001, "document_ids: 'd' ") + "}",
       "rag.documents: has 1001 items, at most 1000"},
      {"sampling { temperature: nan }", "temperature: is nan, must be from 0 to 2"},
      {"sampling { top_p: 0 }", "top_p: is 0, must be over 0 and at most 1"},
      {"sampling { min_p: -0.5 }", "min_p: is -0.5, must be from 0 to 1"},
      {"sampling { presence_penalty: 3 }", "presence_penalty: is 3, must be from -2 to 2"},
      {"sampling { frequency_penalty: -3 }", "frequency_penalty: is -3, must be from -2 to 2"},
      {"sampling { repetition_penalty: 2.5 }", "repetition_penalty: is 2.5, must be from 0 to 2"},
      {"sampling { logit_bias { token: 100 } }",
       "logit_bias: has the token id 100, the model's vocabulary has 100"},
      {"sampling { logit_bias { bias: 101 } }", "logit_bias: is 101, must be from -100 to 100"},
      {"stop: ''", "stop: a string is 0 bytes, must be from 1 to 256"},
      {repeat(17, "stop: 'x' "), "stop: has 17 items, at most 16"},
      {"stop_token_ids: 100", "stop_token_ids: has the token id 100"},
      {"n: 17", "n: is 17, at most 16"},
      {"logprobs: true top_logprobs: 21", "top_logprobs: is 21, at most 20"},
      {"top_logprobs: 1", "top_logprobs: needs logprobs"},
  };
  const std::vector<std::pair<std::string, std::string>> raws = {
      {"raw_prompt { segments { } }", "segments[1]: must be a text or token ids"},
      {"raw_prompt { " + repeat(256, "segments { text: 'x' } ") + "}",
       "segments: has 257 items, at most 256"},
      {"raw_prompt { tail { text: '" + repeat(4 << 20, "x") + "' } }",
       "prompt: the prompt's texts are 4194305 bytes, at most 4194304"},
      {"retrieval { enabled: true }", "raw_prompt: comes instead of messages and retrieval"},
  };
  const auto check = [](v1::AnswerRequest request, const std::string& more,
                        const std::string& words) {
    ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(more, &request)) << more;
    const absl::Status status = validate(request, kVocabulary);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(words));
  };
  for (const auto& [more, words] : chats) check(chat(), more, words);
  for (const auto& [more, words] : raws) check(raw(), more, words);
  v1::AnswerRequest request = raw();
  request.mutable_raw_prompt()->clear_tail();
  EXPECT_EQ(validate(request, kVocabulary).message(), "prompt: must be a text or token ids");
}

}  // namespace
}  // namespace ragcache::controller
