#include <algorithm>
#include <future>
#include <thread>

#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
namespace pb = controller::v1;

// Choices, token probabilities and raw prompts.
class CompletionsTest : public GatewayTest {
 protected:
  http::Response complete(const json& body) { return send("POST", "/v1/completions", body.dump()); }
  http::Response chat(const json& body) {
    return send("POST", "/v1/chat/completions", body.dump());
  }

  std::vector<json> events_of(const http::Response& response) {
    std::vector<json> events;
    http::SseParser parser([&](const http::SseEvent& event) {
      if (event.data != "[DONE]") events.push_back(json::parse(event.data));
      return absl::OkStatus();
    });
    EXPECT_TRUE(parser.feed(response.body).ok());
    EXPECT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
    return events;
  }

  // "é" in two tokens of a byte each, then "!".
  static std::vector<pb::AnswerResponse> answer_with_logprobs() {
    pb::AnswerResponse first = delta("\u00e9");
    const std::pair<const char*, float> tokens[] = {{"\xc3", -0.5f}, {"\xa9", -0.25f}};
    for (const auto& [text, logprob] : tokens) {
      pb::TokenLogprob& token = *first.mutable_delta()->add_logprobs();
      token.set_token(text);
      token.set_logprob(logprob);
    }
    pb::AnswerResponse second = delta("!");
    pb::TokenLogprob& token = *second.mutable_delta()->add_logprobs();
    token.set_token("!");
    token.set_logprob(-2.5f);
    auto& top = *token.add_top();
    top.set_token(".");
    top.set_logprob(-0.125f);
    return {retrieved(), first, second, completed()};
  }
};

TEST_F(CompletionsTest, AnswersARawPromptWhole) {
  start();
  controller_.script({delta("once"), delta(" upon"), completed()});
  json body = json_of(complete({{"model", "ragcache"}, {"prompt", "Tell"}, {"max_tokens", 9}}));
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  body.erase("id");
  body.erase("created");
  EXPECT_EQ(body, json::parse(R"({
    "object": "text_completion", "model": "fake-model",
    "choices": [{"text": "once upon", "index": 0, "logprobs": null, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102,
      "prompt_tokens_details": {"cached_tokens": 64, "cached_documents": 1}},
    "timings": {"search_ms": 1.5, "queue_ms": 0.02, "scheduling_us": 12.5, "ttft_ms": 30.0,
      "total_ms": 45.25}})"));
  const pb::AnswerRequest asked = controller_.last_request();
  EXPECT_EQ(asked.raw_prompt().tail().text(), "Tell");
  EXPECT_EQ(asked.messages_size(), 0);
  EXPECT_FALSE(asked.has_retrieval());
  EXPECT_EQ(asked.max_tokens(), 9u);
  EXPECT_FALSE(asked.logprobs());
}

TEST_F(CompletionsTest, PassesSegmentsAndTokenIdsOn) {
  start();
  controller_.script({delta("x"), completed()});
  ASSERT_EQ(complete({{"model", "ragcache"},
                      {"prompt", {5, 6, 7}},
                      {"segments", json::array({"one", json::array({1, 4294967295}), "two"})}})
                .status,
            200u);
  const pb::RawPrompt prompt = controller_.last_request().raw_prompt();
  EXPECT_THAT(prompt.tail().tokens().ids(), ElementsAre(5, 6, 7));
  ASSERT_EQ(prompt.segments_size(), 3);
  EXPECT_EQ(prompt.segments(0).text(), "one");
  EXPECT_THAT(prompt.segments(1).tokens().ids(), ElementsAre(1, 4294967295));
  EXPECT_EQ(prompt.segments(2).text(), "two");
}

TEST_F(CompletionsTest, NumbersTheChoicesOfSeveralPrompts) {
  start();
  const json request = {{"model", "ragcache"}, {"prompt", {"a", "b"}}, {"n", 2}, {"seed", 3}};
  auto response = std::async(std::launch::async, [&] { return complete(request); });
  std::vector<std::shared_ptr<fakes::FakeAnswer>> calls = {controller_.next_call(),
                                                           controller_.next_call()};
  std::sort(calls.begin(), calls.end(), [](const auto& x, const auto& y) {
    return x->request().raw_prompt().tail().text() < y->request().raw_prompt().tail().text();
  });
  EXPECT_NE(calls[0]->request().request_id(), calls[1]->request().request_id());
  for (size_t i : {1, 0}) {
    EXPECT_EQ(calls[i]->request().n(), 2u);
    EXPECT_EQ(calls[i]->request().sampling().seed(), 3u);
    calls[i]->send(delta(str_cat("p", i, "c1"), 1));
    calls[i]->send(delta(str_cat("p", i, "c0"), 0));
    calls[i]->send(ended(1, pb::FINISH_REASON_LENGTH));
    calls[i]->send(ended(0, pb::FINISH_REASON_STOP));
    calls[i]->send(completed());
    calls[i]->finish();
  }
  const json body = json_of(response.get());
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], str_cat("p", i / 2, "c", i % 2));
    EXPECT_EQ(body["choices"][i]["finish_reason"], i % 2 == 1 ? "length" : "stop");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 200);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 128);
  EXPECT_EQ(body["timings"]["total_ms"], 45.25);
}

TEST_F(CompletionsTest, FailsWholeWhenOnePromptDoes) {
  start();
  auto response = std::async(std::launch::async, [&] {
    return complete({{"model", "ragcache"}, {"prompt", {"a", "b"}}});
  });
  const auto first = controller_.next_call(), second = controller_.next_call();
  first->send(delta("text"));
  second->finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "queue is full"});
  EXPECT_TRUE(first->wait_cancelled());
  EXPECT_EQ(response.get().status, 429u);
}

TEST_F(CompletionsTest, CancelsEveryPromptOfAClientThatLeaves) {
  start();
  std::thread reader([&] {
    auto impatient = http::Client::create(app_->address(), {.idle_timeout_ms = 100});
    EXPECT_FALSE(impatient
                     ->fetch({.method = "POST",
                              .target = "/v1/completions",
                              .headers = {{"Content-Type", "application/json"}},
                              .body = R"({"model": "ragcache", "prompt": ["a", "b", "c"]})"})
                     .ok());
  });
  for (int i = 0; i < 3; ++i) {
    const auto call = controller_.next_call();
    ASSERT_NE(call, nullptr);
    EXPECT_TRUE(call->wait_cancelled());
  }
  reader.join();
}

TEST_F(CompletionsTest, StreamsTextChunksOfAllPrompts) {
  start();
  controller_.script({delta("x"), delta("y"), completed()});
  const auto events =
      events_of(complete({{"model", "ragcache"}, {"prompt", {"a", "b"}}, {"stream", true}}));
  std::string texts[2];
  int finished = 0;
  for (const json& event : events) {
    EXPECT_EQ(event["object"], "text_completion");
    const json& choice = event["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    finished += choice["finish_reason"] == "stop";
  }
  EXPECT_EQ(texts[0] + texts[1], "xyxy");
  EXPECT_EQ(finished, 2);
  EXPECT_TRUE(events.back().contains("timings"));
}

TEST_F(CompletionsTest, BoundsPromptsTimesChoices) {
  start();
  const json request = {
      {"model", "ragcache"}, {"prompt", std::vector<std::string>(5, "x")}, {"n", 13}};
  EXPECT_THAT(complete(request).body, HasSubstr("n: prompts times n must be 1 to 64, not 65"));
}

TEST_F(CompletionsTest, StreamsChoicesAsTheyCome) {
  start();
  controller_.script({retrieved(), delta("A", 1), delta("a", 0), delta("B", 1),
                      ended(1, pb::FINISH_REASON_LENGTH), delta("b", 0),
                      ended(0, pb::FINISH_REASON_STOP), completed()});
  json request = chat_body();
  request["n"] = 2;
  request["stream"] = true;
  const auto events = events_of(chat(request));
  std::vector<std::string> story;
  for (const json& event : events) {
    const json& choice = event["choices"][0];
    story.push_back(str_cat(
        choice["index"].get<int>(), ":", choice["delta"].value("role", ""),
        choice["delta"].value("content", ""),
        choice["finish_reason"].is_string() ? choice["finish_reason"].get<std::string>() : ""));
  }
  EXPECT_THAT(story, ElementsAre("0:assistant", "1:assistant", "1:A", "0:a", "1:B", "1:length",
                                 "0:b", "0:stop"));
  EXPECT_TRUE(events[0].contains("documents"));
  EXPECT_FALSE(events[1].contains("documents"));
  EXPECT_FALSE(events[5].contains("timings"));
  EXPECT_TRUE(events[7].contains("timings"));
}

TEST_F(CompletionsTest, GivesChatLogprobsWithBytes) {
  start();
  controller_.script(answer_with_logprobs());
  json request = chat_body();
  request["logprobs"] = true;
  request["top_logprobs"] = 1;
  const json expected = json::parse(R"([
    {"token": "\ufffd", "logprob": -0.5, "bytes": [195], "top_logprobs": []},
    {"token": "\ufffd", "logprob": -0.25, "bytes": [169], "top_logprobs": []},
    {"token": "!", "logprob": -2.5, "bytes": [33],
     "top_logprobs": [{"token": ".", "logprob": -0.125, "bytes": [46]}]}])");
  const json whole = json_of(chat(request))["choices"][0];
  EXPECT_EQ(whole["logprobs"], (json{{"content", expected}, {"refusal", nullptr}}));
  EXPECT_EQ(whole["message"]["content"], "\u00e9!");
  request["stream"] = true;
  json content = json::array();
  for (const json& event : events_of(chat(request))) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const json& token : logprobs["content"]) content.push_back(token);
  }
  EXPECT_EQ(content, expected);
}

TEST_F(CompletionsTest, GivesCompletionLogprobsInTheirOwnShape) {
  start();
  controller_.script(answer_with_logprobs());
  json request = {{"model", "ragcache"}, {"prompt", "x"}, {"logprobs", 1}};
  EXPECT_EQ(json_of(complete(request))["choices"][0]["logprobs"], json::parse(R"({
    "tokens": ["\ufffd", "\ufffd", "!"], "token_logprobs": [-0.5, -0.25, -2.5],
    "top_logprobs": [null, null, {".": -0.125, "!": -2.5}], "text_offset": [0, 1, 1]})"));
  EXPECT_EQ(controller_.last_request().top_logprobs(), 1u);
  request["stream"] = true;
  std::vector<int> offsets;
  for (const json& event : events_of(complete(request))) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const json& offset : logprobs["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_THAT(offsets, ElementsAre(0, 1, 1));
}

TEST_F(CompletionsTest, RefusesAChoiceThatWasNotAskedFor) {
  start();
  controller_.script({delta("x", 1), completed()});
  EXPECT_EQ(chat(chat_body()).status, 500u);
}

}  // namespace
}  // namespace ragcache::gateway
