#include "loadgen/load/request_body.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

json body_of(const Request& request, const EndpointOptions& endpoint = {},
             const json& extra = json::object()) {
  return json::parse(request_body(request, endpoint, extra));
}

json common(uint32_t max_tokens) {
  return {{"model", "ragcache"},
          {"max_tokens", max_tokens},
          {"temperature", 0},
          {"stream", true},
          {"stream_options", {{"include_usage", true}}}};
}

TEST(RequestBody, AsksOursToFindDocumentsOrNamesThem) {
  Request request{.prompt = ChatPrompt{"why?", ChatPrompt::Retrieval{.top_k = 3, .documents = {}}},
                  .max_tokens = 7};
  json expected = common(7);
  expected["messages"] = json::parse(R"([{"role":"user","content":"why?"}])");
  expected["rag"] = {{"top_k", 3}};
  EXPECT_EQ(body_of(request), expected);
  EXPECT_STREQ(target_of(request), "/v1/chat/completions");

  std::get<ChatPrompt>(request.prompt).retrieval->documents = {"b", "a"};
  expected["rag"] = {{"documents", {"b", "a"}}};
  EXPECT_EQ(body_of(request), expected);
}

TEST(RequestBody, KeepsOursFromAddingDocuments) {
  const Request request{.prompt = ChatPrompt{"why?", {}}};
  EXPECT_EQ(body_of(request)["rag"], json({{"enabled", false}}));
  EXPECT_FALSE(body_of(request, {.segments = false}).contains("rag"));
}

TEST(RequestBody, GivesSegmentsToOursAndOneArrayToOthers) {
  const Request request{.prompt = TokenPrompt{{{1, 2}, {4'294'967'295}}, {5, 6}}};
  json expected = common(1);
  expected["segments"] = json::parse("[[1,2],[4294967295]]");
  expected["prompt"] = {5, 6};
  EXPECT_EQ(body_of(request), expected);
  EXPECT_STREQ(target_of(request), "/v1/completions");

  expected.erase("segments");
  expected["prompt"] = json::parse("[1,2,4294967295,5,6]");
  EXPECT_EQ(body_of(request, {.segments = false}), expected);
}

TEST(RequestBody, TellsOursAloneToGoOnToTheLastToken) {
  Request request{.prompt = ChatPrompt{"why?", {}}};
  EXPECT_FALSE(body_of(request).contains("ignore_eos"));
  request.ignore_eos = true;
  EXPECT_EQ(body_of(request)["ignore_eos"], true);
  EXPECT_FALSE(body_of(request, {.segments = false}).contains("ignore_eos"));
  const json extra = json::parse(R"({"ignore_eos":true})");
  EXPECT_EQ(body_of(request, {.segments = false}, extra)["ignore_eos"], true);
}

TEST(RequestBody, TakesExtraMembersAndAnyBytes) {
  const Request request{.prompt = ChatPrompt{"\xff", {}}};
  const json body = body_of(request, {.model = "m"}, {{"cache_prompt", true}, {"temperature", 1}});
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["cache_prompt"], true);
  EXPECT_EQ(body["temperature"], 1);
  EXPECT_EQ(body["messages"][0]["content"], "\uFFFD");
}

}  // namespace
}  // namespace ragcache::loadgen
