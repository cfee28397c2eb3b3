#include "services/gateway/http/answer_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/openai_error.h"
#include "services/gateway/request/answer.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;

absl::StatusOr<controller::v1::AnswerRequest> chat(const std::string& body) {
  RAG_ASSIGN_OR_RETURN(const json value, parse_json(body));
  RAG_ASSIGN_OR_RETURN(ChatBody parsed, parse_chat(value));
  return to_answer(std::move(parsed.request), {.default_top_k = 5, .max_top_k = 20});
}

absl::StatusOr<controller::v1::AnswerRequest> complete(const std::string& body) {
  RAG_ASSIGN_OR_RETURN(const json value, parse_json(body));
  RAG_ASSIGN_OR_RETURN(CompletionBody parsed, parse_completion(value));
  return to_answer(std::move(parsed.requests.front()));
}

nlohmann::ordered_json error_of(const absl::Status& status) {
  return status.ok() ? nlohmann::ordered_json{{"message", "accepted"}, {"param", ""}}
                     : error_json(status);
}

// The error of the usual request with `fields` merged over it.
nlohmann::ordered_json chat_error(const std::string& fields) {
  json body = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
  body.update(json::parse(fields));
  return error_of(chat(body.dump()).status());
}

nlohmann::ordered_json completion_error(const std::string& fields) {
  json body = {{"model", "m"}, {"prompt", "x"}};
  body.update(json::parse(fields));
  return error_of(complete(body.dump()).status());
}

TEST(ChatFields, NamesFieldAndBoundOfEveryBadValue) {
  const struct {
    const char* fields;
    const char* param;
    const char* message;
  } cases[] = {
      {R"({"model": ""})", "model", "model: must be 1 to 256 bytes long, not 0"},
      {R"({"model": null})", "model", "model: is required"},
      {R"({"model": 3})", "model", "model: must be a string, not a number"},
      {R"({"messages": null})", "messages", "messages: is required"},
      {R"({"messages": []})", "messages", "messages: must hold 1 to 1024 messages, not 0"},
      {R"({"messages": {}})", "messages", "messages: must be an array of messages, not an object"},
      {R"({"messages": ["x"]})", "messages[0]", "messages[0]: must be an object, not a string"},
      {R"({"messages": [{"content": "x"}]})", "messages[0].role", "messages[0].role: is required"},
      {R"({"messages": [{"role": "robot", "content": "x"}]})", "messages[0].role",
       "messages[0].role: must be one of system, developer, user, assistant"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content",
       "messages[0].content: is required"},
      {R"({"messages": [{"role": "user", "content": ""}]})", "messages[0].content",
       "messages[0].content: must not be empty"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]})",
       "messages[1].role", "messages[1].role: the last message must be the user's"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0].type",
       "messages[0].content[0].type: is not supported; only \"text\""},
      {R"({"messages": [{"role": "user", "content": "x", "mood": 1}]})", "messages[0].mood",
       "messages[0].mood: unknown parameter"},
      {R"({"temperature": 2.5})", "temperature", "temperature: must be 0 to 2, not 2.5"},
      {R"({"temperature": "hot"})", "temperature", "temperature: must be a number, not a string"},
      {R"({"top_p": 0})", "top_p", "top_p: must be above 0 to 1, not 0"},
      {R"({"max_tokens": 0})", "max_tokens", "max_tokens: must be 1 to 1048576, not 0"},
      {R"({"max_tokens": 1.5})", "max_tokens",
       "max_tokens: must be a whole number, not a fraction"},
      {R"({"max_tokens": 1e300})", "max_tokens",
       "max_tokens: must be a whole number, not a fraction"},
      {R"({"max_completion_tokens": 18446744073709551615})", "max_completion_tokens",
       "max_completion_tokens: must be -9223372036854775808 to 9223372036854775807, not "
       "18446744073709551615"},
      {R"({"max_tokens": 1, "max_completion_tokens": 2})", "max_tokens",
       "max_tokens: differs from max_completion_tokens: give one of them"},
      {R"({"n": 0})", "n", "n: must be 1 to 16, not 0"},
      {R"({"n": 17})", "n", "n: must be 1 to 16, not 17"},
      {R"({"stream": "yes"})", "stream", "stream: must be a boolean, not a string"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options",
       "stream_options: is only allowed with stream = true"},
      {R"({"stop": ["a", "b", "c", "d", "e"]})", "stop",
       "stop: must hold at most 4 strings, not 5"},
      {R"({"stop": [""]})", "stop", "stop: a string must be 1 to 256 bytes long, not 0"},
      {R"({"stop": 1})", "stop", "stop: must be a string or an array of strings"},
      {R"({"seed": 1.5})", "seed", "seed: must be a whole number, not a fraction"},
      {R"({"logprobs": 1})", "logprobs", "logprobs: must be a boolean, not a number"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs",
       "top_logprobs: must be 0 to 20, not 21"},
      {R"({"top_logprobs": 1})", "top_logprobs",
       "top_logprobs: is only allowed with logprobs = true"},
      {R"({"tools": [{"type": "function"}]})", "tools", "tools: is not supported; leave it out"},
      {R"({"response_format": {"type": "json_object"}})", "response_format",
       "response_format: is not supported; only {\"type\": \"text\"}"},
      {R"({"presence_penalty": 2.5})", "presence_penalty",
       "presence_penalty: must be -2 to 2, not 2.5"},
      {R"({"frequency_penalty": -3})", "frequency_penalty",
       "frequency_penalty: must be -2 to 2, not -3"},
      {R"({"repetition_penalty": 0})", "repetition_penalty",
       "repetition_penalty: must be above 0 to 2, not 0"},
      {R"({"min_p": 1.5})", "min_p", "min_p: must be 0 to 1, not 1.5"},
      {R"({"top_k": -1})", "top_k", "top_k: must be 0 to 1048576, not -1"},
      {R"({"logit_bias": [1]})", "logit_bias", "logit_bias: must be an object, not an array"},
      {R"({"logit_bias": {"the": 1}})", "logit_bias.the",
       "logit_bias.the: the name must be a token id, 0 to 4294967295"},
      {R"({"logit_bias": {"-1": 1}})", "logit_bias.-1",
       "logit_bias.-1: the name must be a token id, 0 to 4294967295"},
      {R"({"logit_bias": {"7": "x"}})", "logit_bias.7",
       "logit_bias.7: must be a number, not a string"},
      {R"({"logit_bias": {"7": -100.5}})", "logit_bias.7",
       "logit_bias.7: must be -100 to 100, not -100.5"},
      {R"({"stop_token_ids": [1, -2]})", "stop_token_ids[1]",
       "stop_token_ids[1]: must be 0 to 4294967295, not -2"},
      {R"({"stop_token_ids": ["x"]})", "stop_token_ids[0]",
       "stop_token_ids[0]: must be a token id, not a string"},
      {R"({"ignore_eos": 1})", "ignore_eos", "ignore_eos: must be a boolean, not a number"},
      {R"({"temprature": 1})", "temprature", "temprature: unknown parameter"},
      {R"({"rag": true})", "rag", "rag: must be an object, not a boolean"},
      {R"({"rag": {"top_k": 21}})", "rag.top_k", "rag.top_k: must be 1 to 20, not 21"},
      {R"({"rag": {"corpora": "x"}})", "rag.corpora", "rag.corpora: unknown parameter"},
      {R"({"rag": {"corpus": "A/b"}})", "rag.corpus",
       "rag.corpus: must be 1 to 64 of a-z, 0-9, '-', '_', '.'"},
      {R"({"rag": {"documents": []}})", "rag.documents",
       "rag.documents: must be an array of at least one id"},
      {R"({"rag": {"documents": [7]}})", "rag.documents[0]",
       "rag.documents[0]: must be a string, not a number"},
      {R"({"rag": {"filter": {"a": null}}})", "rag.filter.a",
       "rag.filter.a: must be a string, a number or a boolean, not null"},
      {R"({"rag": {"documents": ["a"], "filter": {}}})", "rag.documents",
       "rag.documents: cannot be given with rag.filter: nothing is searched"},
      {R"({"rag": {"enabled": false, "documents": ["a"]}})", "rag.documents",
       "rag.documents: cannot be given with rag.enabled = false"},
  };
  for (const auto& [fields, param, message] : cases) {
    const nlohmann::ordered_json error = chat_error(fields);
    EXPECT_EQ(error["message"], message) << fields;
    EXPECT_EQ(error["param"], param) << fields;
  }
}

TEST(ChatFields, AcceptsWhatAsksForNothing) {
  for (const char* fields :
       {R"({"user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto"})",
        R"({"tools": [], "tool_choice": "auto", "logit_bias": {}, "parallel_tool_calls": true})",
        R"({"top_logprobs": 0, "logprobs": false, "modalities": ["text"], "n": 1.0})",
        R"({"n": 16, "top_k": 0, "min_p": 1, "repetition_penalty": 2, "ignore_eos": false})",
        R"({"logprobs": true, "top_logprobs": 20, "logit_bias": {"4294967295": -100}})",
        R"({"rag": {"top_k": 20, "corpus": "wiki-2024_a.b", "filter": {"lang": "en"}}})",
        R"({"temperature": null, "stop": null, "rag": null, "seed": -9223372036854775808})",
        R"({"stream": true, "stream_options": {"include_usage": true}})",
        R"({"max_tokens": 5, "max_completion_tokens": 5, "stop": "x"})"}) {
    EXPECT_EQ(chat_error(fields)["message"], "accepted") << fields;
  }
}

TEST(ChatFields, RefusesWhatIsNotOneJsonObject) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1"), std::string("nul"),
        std::string("\"text\""), std::string("[]"), std::string("{} {}"),
        std::string("{\"model\": \"\xff\"}"), std::string("{\"model\": \"\\ud800\"}"),
        std::string(100'000, '['), std::string("{\"a\":") + std::string(40, '[')}) {
    const auto request = chat(body);
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body.substr(0, 50);
  }
}

TEST(ChatFields, NamesTheFieldThatIsNoUtf8) {
  const std::pair<std::string, std::string> cases[] = {
      {"{\"model\": \"\xff\"}", "model"},
      {"{\"messages\": [{\"content\": \"ok\"}, {\"content\": \"a\xc3(\"}]}", "messages[1].content"},
      {"{\"stop\": [\"\\n\", \"\xed\xa0\x80\"]}", "stop[1]"},
      {"{\"m\xe4\": 1}", "body"},
      {"\xff", "body"}};
  for (const auto& [body, field] : cases) {
    const nlohmann::ordered_json error = error_json(parse_json(body).status());
    EXPECT_EQ(error["param"], field);
    EXPECT_THAT(error["message"].get<std::string>(),
                testing::StartsWith(field + ": must be UTF-8: see byte "));
  }
}

TEST(CompletionFields, NamesFieldAndBoundOfEveryBadValue) {
  const std::string many = json(std::vector<std::string>(17, "x")).dump();
  const struct {
    std::string fields;
    const char* param;
    const char* message;
  } cases[] = {
      {R"({"prompt": null})", "prompt", "prompt: is required"},
      {R"({"prompt": ""})", "prompt", "prompt: must be 1 to 4194304 bytes long, not 0"},
      {R"({"prompt": []})", "prompt",
       "prompt: must be a string, an array of token ids, or 1 to 16 of these"},
      {str_cat("{\"prompt\": ", many, "}"), "prompt",
       "prompt: must be a string, an array of token ids, or 1 to 16 of these"},
      {R"({"prompt": [1, "x"]})", "prompt[1]", "prompt[1]: must be a token id, not a string"},
      {R"({"prompt": [1, 2.5]})", "prompt[1]", "prompt[1]: must be a token id, not a fraction"},
      {R"({"prompt": ["a", [1, -1]]})", "prompt[1][1]",
       "prompt[1][1]: must be 0 to 4294967295, not -1"},
      {R"({"prompt": {"a": 1}})", "prompt",
       "prompt: must be a string, an array of token ids, or 1 to 16 of these"},
      {R"({"segments": "x"})", "segments",
       "segments: must be an array of strings or arrays of token ids, not a string"},
      {R"({"segments": ["x", ""]})", "segments[1]",
       "segments[1]: must be 1 to 4194304 bytes long, not 0"},
      {R"({"echo": true})", "echo", "echo: is not supported; only false"},
      {R"({"suffix": "x"})", "suffix", "suffix: is not supported; leave it out"},
      {R"({"best_of": 2})", "best_of", "best_of: is not supported; only what n is"},
      {R"({"logprobs": 6})", "logprobs", "logprobs: must be 0 to 5, not 6"},
      {R"({"logprobs": true})", "logprobs", "logprobs: must be a whole number, not a boolean"},
      {R"({"messages": []})", "messages", "messages: unknown parameter"},
      {R"({"rag": {}})", "rag", "rag: unknown parameter"},
  };
  for (const auto& [fields, param, message] : cases) {
    const nlohmann::ordered_json error = completion_error(fields);
    EXPECT_EQ(error["message"], message) << fields;
    EXPECT_EQ(error["param"], param) << fields;
  }
}

TEST(CompletionFields, AcceptsWhatAsksForNothing) {
  for (const char* fields :
       {R"({"echo": false, "suffix": "", "best_of": 1, "user": "u", "logprobs": null})",
        R"({"n": 3, "best_of": 3, "logprobs": 0})", R"({"prompt": [[1, 2], "x"]})",
        R"({"segments": []})"}) {
    EXPECT_EQ(completion_error(fields)["message"], "accepted") << fields;
  }
}

}  // namespace
}  // namespace ragcache::gateway
