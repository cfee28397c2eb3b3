#include "services/gateway/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/gateway/openai_error.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;

// The error of the usual request with `fields` merged over it.
nlohmann::ordered_json error_of(const std::string& fields) {
  json body = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
  body.update(json::parse(fields));
  const absl::StatusOr<ChatRequest> request =
      parse_chat_request(body.dump(), {.top_k = 5, .max_top_k = 20});
  return request.ok() ? nlohmann::ordered_json{{"message", "accepted"}, {"param", ""}}
                      : error_json(request.status());
}

TEST(ChatRequest, NamesFieldAndBoundOfEveryBadValue) {
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
      {R"({"messages": {}})", "messages", "messages: must be an array of messages"},
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
       "max_completion_tokens: must be 1 to 1048576, not 18446744073709551615"},
      {R"({"max_tokens": 1, "max_completion_tokens": 2})", "max_tokens",
       "max_tokens: differs from max_completion_tokens: give one of them"},
      {R"({"n": 2})", "n", "n: is not supported; only 1"},
      {R"({"stream": "yes"})", "stream", "stream: must be a boolean, not a string"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options",
       "stream_options: is only allowed with stream = true"},
      {R"({"stop": ["a", "b", "c", "d", "e"]})", "stop",
       "stop: must hold at most 4 strings, not 5"},
      {R"({"stop": [""]})", "stop", "stop: a string must be 1 to 256 bytes long, not 0"},
      {R"({"stop": 1})", "stop", "stop: must be a string or an array of strings"},
      {R"({"seed": 1.5})", "seed", "seed: must be a whole number, not a fraction"},
      {R"({"logprobs": true})", "logprobs", "logprobs: is not supported; only false"},
      {R"({"tools": [{"type": "function"}]})", "tools", "tools: is not supported; leave it out"},
      {R"({"response_format": {"type": "json_object"}})", "response_format",
       "response_format: is not supported; only {\"type\": \"text\"}"},
      {R"({"presence_penalty": 0.5})", "presence_penalty",
       "presence_penalty: is not supported; only 0"},
      {R"({"temprature": 1})", "temprature", "temprature: unknown parameter"},
      {R"({"rag": true})", "rag", "rag: must be an object, not a boolean"},
      {R"({"rag": {"top_k": 21}})", "rag.top_k", "rag.top_k: must be 1 to 20, not 21"},
      {R"({"rag": {"corpus": "x"}})", "rag.corpus", "rag.corpus: unknown parameter"},
      {R"({"rag": {"documents": []}})", "rag.documents",
       "rag.documents: must be an array of 1 to 20 ids"},
      {R"({"rag": {"documents": [7]}})", "rag.documents[0]", "rag.documents[0]: must be a string"},
      {R"({"rag": {"enabled": false, "documents": ["a"]}})", "rag.documents",
       "rag.documents: cannot be given with rag.enabled = false"},
  };
  for (const auto& [fields, param, message] : cases) {
    const nlohmann::ordered_json error = error_of(fields);
    EXPECT_EQ(error["message"], message) << fields;
    EXPECT_EQ(error["param"], param) << fields;
  }
}

TEST(ChatRequest, AcceptsWhatAsksForNothing) {
  for (const char* fields :
       {R"({"user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto"})",
        R"({"tools": [], "tool_choice": "auto", "logit_bias": {}, "parallel_tool_calls": true})",
        R"({"top_logprobs": 0, "logprobs": false, "modalities": ["text"], "n": 1.0})",
        R"({"temperature": null, "stop": null, "rag": null, "seed": -9223372036854775808})",
        R"({"stream": true, "stream_options": {"include_usage": true}})",
        R"({"max_tokens": 5, "max_completion_tokens": 5, "stop": "x"})"}) {
    EXPECT_EQ(error_of(fields)["message"], "accepted") << fields;
  }
}

TEST(ChatRequest, RefusesWhatIsNotOneJsonObject) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1"), std::string("nul"),
        std::string("\"text\""), std::string("[]"), std::string("{} {}"),
        std::string("{\"model\": \"\xff\"}"), std::string("{\"model\": \"\\ud800\"}"),
        std::string(100'000, '['), std::string("{\"a\":") + std::string(40, '[')}) {
    const auto request = parse_chat_request(body, {.top_k = 5, .max_top_k = 20});
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body.substr(0, 50);
  }
}

}  // namespace
}  // namespace ragcache::gateway
