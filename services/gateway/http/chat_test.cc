#include <future>
#include <random>

#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace pb = controller::v1;

class ChatTest : public GatewayTest {
 protected:
  http::Response chat(const json& body) {
    return send("POST", "/v1/chat/completions", body.dump());
  }

  // The data of the events of a streamed answer.
  std::vector<std::string> events_of(const http::Response& response) {
    std::vector<std::string> events;
    http::SseParser parser([&](const http::SseEvent& event) {
      events.push_back(event.data);
      return absl::OkStatus();
    });
    EXPECT_TRUE(parser.feed(response.body).ok());
    return events;
  }
};

TEST_F(ChatTest, AnswersWholeInTheShapeOfOpenAi) {
  start();
  controller_.script(answer());
  const http::Response response = chat(chat_body());
  EXPECT_EQ(response.status, 200u);
  EXPECT_EQ(response.content_type, "application/json");
  json body = json_of(response);
  EXPECT_EQ(body["id"], str_cat("chatcmpl-", response.headers.get("x-request-id")));
  EXPECT_TRUE(body["created"].is_number_integer());
  body.erase("id");
  body.erase("created");
  EXPECT_EQ(body, json::parse(R"({
    "object": "chat.completion", "model": "fake-model",
    "choices": [{"index": 0, "logprobs": null, "finish_reason": "stop",
      "message": {"role": "assistant", "content": "Because \"ü\"\n", "refusal": null}}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102,
      "prompt_tokens_details": {"cached_tokens": 64, "cached_documents": 1}},
    "documents": [{"id": "b", "title": "Title b", "score": 0.9, "rank": 1},
                  {"id": "a", "title": "Title a", "score": 0.25, "rank": 2}],
    "timings": {"search_ms": 1.5, "queue_ms": 0.02, "scheduling_us": 12.5, "ttft_ms": 30.0,
      "total_ms": 45.25}})"));
}

TEST_F(ChatTest, StreamsTheExactEvents) {
  start();
  controller_.script(answer());
  json request = chat_body();
  request["stream"] = true;
  const http::Response response = chat(request);
  EXPECT_EQ(response.content_type, "text/event-stream");
  const std::string created =
      std::to_string(json::parse(events_of(response)[0])["created"].get<int64_t>());
  const std::string head =
      str_cat(R"(data: {"id":"chatcmpl-)", response.headers.get("x-request-id"),
              R"(","object":"chat.completion.chunk","created":)", created,
              R"(,"model":"fake-model","choices":[{"index":0,"delta":)");
  EXPECT_EQ(
      response.body,
      str_cat(
          head, R"({"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],)",
          R"("documents":[{"id":"b","title":"Title b","score":0.9,"rank":1},)",
          R"({"id":"a","title":"Title a","score":0.25,"rank":2}]})", "\n\n", head,
          R"({"content":"Bec"},"logprobs":null,"finish_reason":null}]})", "\n\n", head,
          R"({"content":"ause \"ü\"\n"},"logprobs":null,"finish_reason":null}]})", "\n\n", head,
          R"({},"logprobs":null,"finish_reason":"stop"}],)",
          R"("timings":{"search_ms":1.5,"queue_ms":0.02,"scheduling_us":12.5,"ttft_ms":30.0,"total_ms":45.25}})",
          "\n\n", "data: [DONE]\n\n"));
}

TEST_F(ChatTest, SendsUsageWithItsTimingsWhenAsked) {
  start();
  controller_.script(answer());
  json request = chat_body();
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const std::vector<std::string> events = events_of(chat(request));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_TRUE(json::parse(events[0])["usage"].is_null());
  EXPECT_FALSE(json::parse(events[3]).contains("timings"));
  const json last = json::parse(events[4]);
  EXPECT_EQ(last["choices"], json::array());
  EXPECT_EQ(last["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
  EXPECT_EQ(last["timings"]["ttft_ms"], 30.0);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(ChatTest, SaysZeroCachedTokensToo) {
  start();
  pb::AnswerResponse end = completed();
  end.mutable_completed()->set_cached_tokens(0);
  end.mutable_completed()->set_reason(pb::FINISH_REASON_LENGTH);
  controller_.script({delta("x"), end});
  const json body = json_of(chat(chat_body()));
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["documents"], json::array());
}

TEST_F(ChatTest, PassesEveryParameterOn) {
  start();
  controller_.script(answer());
  const json request = json::parse(R"({
    "model": "fake-model", "temperature": 0.5, "top_p": 0.75, "seed": -3, "max_tokens": 17,
    "stop": ["a", "b"], "user": "someone", "store": false, "tools": [], "n": 2,
    "response_format": {"type": "text"}, "frequency_penalty": -0.5, "presence_penalty": 0.25,
    "repetition_penalty": 1.5, "min_p": 0.125, "top_k": 40, "logit_bias": {"50256": -100, "7": 2.5},
    "stop_token_ids": [2, 11], "ignore_eos": true, "logprobs": true, "top_logprobs": 4,
    "rag": {"top_k": 3, "corpus": "wiki", "documents": ["z", "y", "z"]},
    "messages": [{"role": "developer", "content": "be brief"},
                 {"role": "user", "content": [{"type": "text", "text": "one"},
                                              {"type": "text", "text": "two"}]},
                 {"role": "assistant", "content": "so", "refusal": null, "tool_calls": []},
                 {"role": "user", "content": "and?", "name": "n"}]})");
  ASSERT_EQ(send("POST", "/v1/chat/completions", request.dump(), "application/json; charset=utf-8",
                 {{"x-request-id", "mine"}})
                .status,
            200u);
  const pb::AnswerRequest got = controller_.last_request();
  EXPECT_EQ(got.request_id(), "mine");
  ASSERT_EQ(got.messages_size(), 4);
  EXPECT_EQ(got.messages(0).role(), pb::ROLE_SYSTEM);
  EXPECT_EQ(got.messages(1).content(), "one\ntwo");
  EXPECT_EQ(got.messages(2).role(), pb::ROLE_ASSISTANT);
  EXPECT_EQ(got.messages(3).content(), "and?");
  EXPECT_FLOAT_EQ(got.sampling().temperature(), 0.5f);
  EXPECT_FLOAT_EQ(got.sampling().top_p(), 0.75f);
  EXPECT_EQ(got.sampling().seed(), static_cast<uint64_t>(-3));
  EXPECT_FLOAT_EQ(got.sampling().frequency_penalty(), -0.5f);
  EXPECT_FLOAT_EQ(got.sampling().presence_penalty(), 0.25f);
  EXPECT_FLOAT_EQ(got.sampling().repetition_penalty(), 1.5f);
  EXPECT_FLOAT_EQ(got.sampling().min_p(), 0.125f);
  EXPECT_EQ(got.sampling().top_k(), 40u);
  ASSERT_EQ(got.sampling().logit_bias_size(), 2);
  EXPECT_EQ(got.sampling().logit_bias(0).token(), 50256u);
  EXPECT_FLOAT_EQ(got.sampling().logit_bias(1).bias(), 2.5f);
  EXPECT_THAT(got.stop_token_ids(), testing::ElementsAre(2, 11));
  EXPECT_TRUE(got.ignore_eos());
  EXPECT_TRUE(got.logprobs());
  EXPECT_EQ(got.top_logprobs(), 4u);
  EXPECT_EQ(got.n(), 2u);
  EXPECT_EQ(got.tenant(), "default");
  EXPECT_EQ(got.retrieval().corpus(), "wiki");
  EXPECT_EQ(got.max_tokens(), 17u);
  EXPECT_THAT(got.stop(), testing::ElementsAre("a", "b"));
  EXPECT_TRUE(got.retrieval().enabled());
  EXPECT_EQ(got.retrieval().top_k(), 3u);
  EXPECT_THAT(got.retrieval().document_ids(), testing::ElementsAre("z", "y", "z"));
}

TEST_F(ChatTest, FillsInDefaults) {
  start({.default_top_k = 7});
  controller_.script(answer());
  ASSERT_EQ(chat(chat_body()).status, 200u);
  const pb::AnswerRequest first = controller_.last_request();
  EXPECT_EQ(first.retrieval().top_k(), 7u);
  EXPECT_FLOAT_EQ(first.sampling().temperature(), 1.0f);
  EXPECT_FLOAT_EQ(first.sampling().top_p(), 1.0f);
  EXPECT_FLOAT_EQ(first.sampling().repetition_penalty(), 1.0f);
  EXPECT_EQ(first.n(), 1u);
  EXPECT_EQ(first.max_tokens(), 0u);
  EXPECT_FALSE(first.retrieval().has_filter());
  ASSERT_EQ(chat(chat_body()).status, 200u);
  EXPECT_NE(first.sampling().seed(), controller_.last_request().sampling().seed());
}

TEST_F(ChatTest, TakesAsManyDocumentsAsItsOptionsAllow) {
  start({.default_top_k = 200, .max_top_k = 500});
  controller_.script(answer());
  json request = chat_body();
  ASSERT_EQ(chat(request).status, 200u);
  EXPECT_EQ(controller_.last_request().retrieval().top_k(), 200u);
  request["rag"] = {{"top_k", 500}};
  ASSERT_EQ(chat(request).status, 200u);
  EXPECT_EQ(controller_.last_request().retrieval().top_k(), 500u);
  request["rag"] = {{"documents", std::vector<std::string>(500, "d")}};
  ASSERT_EQ(chat(request).status, 200u);
  EXPECT_EQ(controller_.last_request().retrieval().document_ids_size(), 500);
  request["rag"] = {{"top_k", 501}};
  EXPECT_EQ(chat(request).status, 400u);
}

TEST_F(ChatTest, GivesErrorsBeforeTheFirstTextTheirStatus) {
  start();
  const struct {
    grpc::StatusCode code;
    unsigned status;
    const char* type;
  } cases[] = {{grpc::StatusCode::INVALID_ARGUMENT, 400, "invalid_request_error"},
               {grpc::StatusCode::NOT_FOUND, 404, "invalid_request_error"},
               {grpc::StatusCode::RESOURCE_EXHAUSTED, 429, "rate_limit_error"},
               {grpc::StatusCode::UNAVAILABLE, 503, "server_error"},
               {grpc::StatusCode::DEADLINE_EXCEEDED, 504, "server_error"},
               {grpc::StatusCode::INTERNAL, 500, "server_error"}};
  for (bool stream : {false, true}) {
    for (const auto& [code, status, type] : cases) {
      controller_.script({retrieved()}, grpc::Status(code, "what happened"));
      json request = chat_body();
      request["stream"] = stream;
      const http::Response response = chat(request);
      EXPECT_EQ(response.status, status);
      const json error = json_of(response)["error"];
      EXPECT_EQ(error["message"], "what happened");
      EXPECT_EQ(error["type"], type);
      EXPECT_TRUE(error.contains("param") && error.contains("code"));
      EXPECT_EQ(response.headers.find("retry-after") != nullptr, status == 429 || status == 503);
    }
  }
}

TEST_F(ChatTest, NamesTheFieldThatIsRefusedBehindIt) {
  start();
  const struct {
    grpc::StatusCode code;
    const char* message;
    json param;
  } cases[] = {
      {grpc::StatusCode::INVALID_ARGUMENT, "max_tokens: the prompt's 9 tokens and", "max_tokens"},
      {grpc::StatusCode::INVALID_ARGUMENT, "messages[1].role: only the first", "messages[1].role"},
      {grpc::StatusCode::INVALID_ARGUMENT, "tail_tokens has an id: outside", nullptr},
      {grpc::StatusCode::INVALID_ARGUMENT, "n:1", nullptr},
      {grpc::StatusCode::INVALID_ARGUMENT, "prompt", nullptr},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "max_requests: 8 requests are open", nullptr}};
  for (const auto& [code, message, param] : cases) {
    controller_.script({}, grpc::Status(code, message));
    EXPECT_EQ(json_of(chat(chat_body()))["error"]["param"], param) << message;
  }
}

TEST_F(ChatTest, TellsAnErrorInsideTheStream) {
  start();
  controller_.script({retrieved(), delta("half")},
                     grpc::Status(grpc::StatusCode::UNAVAILABLE, "worker lost"));
  json request = chat_body();
  request["stream"] = true;
  const std::vector<std::string> events = events_of(chat(request));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(json::parse(events[2])["error"]["message"], "worker lost");
}

TEST_F(ChatTest, TreatsAnEndWithoutCompletionAsAFault) {
  start();
  controller_.script({retrieved(), delta("half")});
  EXPECT_EQ(chat(chat_body()).status, 500u);
}

TEST_F(ChatTest, SendsEachTextAsItComes) {
  start();
  std::promise<std::string> first_text;
  bool has_first = false;
  std::thread reader([&] {
    json request = chat_body();
    request["stream"] = true;
    http::SseParser parser([&](const http::SseEvent& event) {
      if (event.data.find("Bec") != std::string::npos && !std::exchange(has_first, true)) {
        first_text.set_value(event.data);
      }
      return absl::OkStatus();
    });
    const auto response = client().stream(
        {.method = "POST",
         .target = "/v1/chat/completions",
         .headers = {{"Content-Type", "application/json"}},
         .body = request.dump()},
        [&](const http::Response&, std::string_view bytes) { return parser.feed(bytes); });
    EXPECT_TRUE(response.ok()) << response.status();
  });
  const std::shared_ptr<fakes::FakeAnswer> call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  call->send(retrieved());
  call->send(delta("Bec"));
  // The rest is not written before the client has this.
  EXPECT_EQ(first_text.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  call->send(completed());
  call->finish();
  reader.join();
}

TEST_F(ChatTest, CancelsTheCallOfAClientThatLeavesBeforeItsAnswer) {
  start();
  for (bool stream : {false, true}) {
    json request = chat_body();
    request["stream"] = stream;
    std::thread reader([&] {
      auto impatient = http::Client::create(app_->address(), {.idle_timeout_ms = 50});
      EXPECT_FALSE(impatient
                       ->fetch({.method = "POST",
                                .target = "/v1/chat/completions",
                                .headers = {{"Content-Type", "application/json"}},
                                .body = request.dump()})
                       .ok());
    });
    const std::shared_ptr<fakes::FakeAnswer> call = controller_.next_call();
    ASSERT_NE(call, nullptr);
    call->send(retrieved());
    EXPECT_TRUE(call->wait_cancelled());
    reader.join();
  }
}

TEST_F(ChatTest, CancelsTheCallOfAClientThatLeavesMidStream) {
  start();
  std::thread reader([&] {
    json request = chat_body();
    request["stream"] = true;
    const auto response = client().stream(
        {.method = "POST",
         .target = "/v1/chat/completions",
         .headers = {{"Content-Type", "application/json"}},
         .body = request.dump()},
        [](const http::Response&, std::string_view) { return absl::AbortedError("enough"); });
    EXPECT_TRUE(absl::IsAborted(response.status()));
  });
  const std::shared_ptr<fakes::FakeAnswer> call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  call->send(delta("Bec"));
  EXPECT_TRUE(call->wait_cancelled());
  reader.join();
}

TEST_F(ChatTest, EndsOpenAnswersWhenItStops) {
  start({.stop_grace_ms = 20});
  std::thread reader([&] {
    EXPECT_FALSE(client()
                     .fetch({.method = "POST",
                             .target = "/v1/chat/completions",
                             .headers = {{"Content-Type", "application/json"}},
                             .body = chat_body().dump()})
                     .ok());
  });
  const std::shared_ptr<fakes::FakeAnswer> call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  app_->stop();
  EXPECT_TRUE(call->wait_cancelled());
  reader.join();
}

TEST_F(ChatTest, KnowsTheServedModelAndItsAlias) {
  start();
  controller_.script(answer());
  json request = chat_body();
  for (const char* name : {"ragcache", "fake-model"}) {
    request["model"] = name;
    EXPECT_EQ(chat(request).status, 200u) << name;
  }
  request["model"] = "gpt-4o";
  const http::Response unknown = chat(request);
  EXPECT_EQ(unknown.status, 404u);
  EXPECT_EQ(json_of(unknown)["error"]["code"], "model_not_found");
  EXPECT_EQ(json_of(unknown)["error"]["param"], "model");
  // Another model is served from now on: the name is asked for anew.
  pb::GetStatusResponse status;
  status.set_ready(true);
  status.set_model_name("gpt-4o");
  status.set_context_tokens(100);
  controller_.set_status(status);
  EXPECT_EQ(chat(request).status, 200u);
  request["max_tokens"] = 101;
  EXPECT_THAT(chat(request).body, HasSubstr("max_tokens: must be 1 to 100, the model's context"));
}

TEST_F(ChatTest, AnswersUnavailableWhileNothingIsLoaded) {
  start();
  pb::GetStatusResponse status;
  status.set_not_ready_reason("loading the model");
  controller_.set_status(status);
  const http::Response response = chat(chat_body());
  EXPECT_EQ(response.status, 503u);
  EXPECT_THAT(response.body, HasSubstr("loading the model"));
}

TEST_F(ChatTest, WantsJson) {
  start();
  const std::string body = chat_body().dump();
  EXPECT_EQ(send("POST", "/v1/chat/completions", body, "text/plain").status, 415u);
  EXPECT_EQ(send("POST", "/v1/chat/completions", body, "").status, 415u);
  EXPECT_EQ(
      send("POST", "/v1/chat/completions", body, "application/json", {{"Content-Encoding", "br"}})
          .status,
      415u);
}

TEST_F(ChatTest, CountsWhatItServed) {
  start();
  controller_.script(answer());
  json request = chat_body();
  chat(request);
  request["stream"] = true;
  chat(request);
  chat({});
  EXPECT_THAT(send("GET", "/metrics", "", "").body, HasSubstr("\nragcache_http_connections "));
  const std::string text = final_metrics();
  for (const char* line :
       {"ragcache_http_requests_total{code=\"200\",route=\"/v1/chat/completions\"} 2",
        "ragcache_http_requests_total{code=\"400\",route=\"/v1/chat/completions\"} 1",
        "ragcache_time_to_first_token_seconds_count{stream=\"false\"} 1",
        "ragcache_time_to_first_token_seconds_count{stream=\"true\"} 1",
        "ragcache_time_per_output_token_seconds_count{stream=\"false\"} 1",
        "ragcache_time_per_output_token_seconds_count{stream=\"true\"} 1",
        "ragcache_e2e_request_latency_seconds_count{stream=\"true\"} 1",
        "ragcache_time_to_first_token_seconds_bucket{stream=\"true\",le=\"0.001\"}"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ChatTest, ObservesTheTimeOfATokenIfThereIsASecond) {
  start();
  for (uint32_t tokens : {0, 1, 2, 9}) {
    pb::AnswerResponse end = completed();
    end.mutable_completed()->set_completion_tokens(tokens);
    controller_.script({delta("x"), end});
    EXPECT_EQ(chat(chat_body()).status, 200u);
  }
  EXPECT_THAT(final_metrics(),
              HasSubstr("ragcache_time_per_output_token_seconds_count{stream=\"false\"} 2"));
}

TEST_F(ChatTest, SurvivesRandomlyCorruptedBodies) {
  start();
  controller_.script(answer());
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 draw(seed);
  json request = chat_body();
  request["temperature"] = 0.5;
  request["stop"] = {"x", "\n"};
  request["rag"] = {{"top_k", 3}, {"documents", {"a", "b"}}};
  const std::string whole = request.dump();
  for (int round = 0; round < 300; ++round) {
    std::string body = whole;
    for (uint32_t i = 0, n = 1 + draw() % 4; i < n; ++i) {
      const size_t at = draw() % body.size();
      switch (draw() % 4) {
        case 0:
          body[at] = static_cast<char>(draw());
          break;
        case 1:
          body.erase(at, 1 + draw() % 8);
          break;
        case 2:
          body.insert(at, body.substr(draw() % body.size(), draw() % 20));
          break;
        default:
          body[at] = "{}[]\",:0-9\\"[draw() % 11];
          break;
      }
      if (body.empty()) body = "x";
    }
    const unsigned status = send("POST", "/v1/chat/completions", body).status;
    ASSERT_TRUE(status == 200 || status == 400 || status == 404) << status << " for " << body;
  }
}

}  // namespace
}  // namespace ragcache::gateway
