#include <future>

#include "loadgen/load/load.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::loadgen {
namespace {

using testing::ElementsAre;
using testing::StartsWith;
namespace pb = controller::v1;

class GrpcLoad : public gateway::GatewayTest {
 protected:
  void SetUp() override { start(); }

  LoadResult load(const std::vector<Request>& requests, LoadOptions options = {}) {
    absl::StatusOr<LoadResult> result =
        run_load({.url = "grpc://" + app_->grpc_address()}, requests, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : LoadResult{};
  }

  static Request question() {
    return {.prompt = ChatPrompt{"why?", ChatPrompt::Retrieval{.top_k = 2, .documents = {}}},
            .max_tokens = 9};
  }
};

TEST_F(GrpcLoad, TellsOfARequestWhatBecameOfIt) {
  controller_.script(answer());
  const LoadResult result = load({question(), question()});
  EXPECT_TRUE(result.status.ok());
  for (const Outcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.text, "Because \"ü\"\n");
    EXPECT_THAT(outcome.documents, ElementsAre("b", "a"));
    ASSERT_TRUE(outcome.first_token);
    EXPECT_LE(outcome.sent, *outcome.first_token);
    EXPECT_LE(*outcome.first_token, outcome.end);
    EXPECT_EQ(outcome.prompt_tokens, 100u);
    EXPECT_EQ(outcome.cached_tokens, 64u);
    EXPECT_EQ(outcome.cached_documents, 1u);
    EXPECT_EQ(outcome.completion_tokens, 2u);
    EXPECT_EQ(outcome.search_ms, 1.5);
    EXPECT_EQ(outcome.queue_ms, 0.02);
    EXPECT_EQ(outcome.scheduling_us, 12.5);
  }
  const pb::AnswerRequest asked = controller_.last_request();
  EXPECT_EQ(asked.messages(0).content(), "why?");
  EXPECT_EQ(asked.retrieval().top_k(), 2u);
  EXPECT_EQ(asked.max_tokens(), 9u);
  EXPECT_EQ(asked.sampling().temperature(), 0);
  EXPECT_FALSE(asked.ignore_eos());
}

TEST_F(GrpcLoad, TellsAServerToGoOnToTheLastToken) {
  controller_.script(answer());
  Request request = question();
  request.ignore_eos = true;
  EXPECT_EQ(load({request}).outcomes[0].error, "");
  EXPECT_TRUE(controller_.last_request().ignore_eos());
}

TEST_F(GrpcLoad, SendsTokensWithTheirSegments) {
  controller_.script({delta("x"), completed()});
  EXPECT_EQ(load({{.prompt = TokenPrompt{{{1, 2}, {3}}, {4}}}}).outcomes[0].error, "");
  const pb::RawPrompt prompt = controller_.last_request().raw_prompt();
  ASSERT_EQ(prompt.segments_size(), 2);
  EXPECT_THAT(prompt.segments(0).tokens().ids(), ElementsAre(1, 2));
  EXPECT_THAT(prompt.tail().tokens().ids(), ElementsAre(4));
}

TEST_F(GrpcLoad, NamesEachWayOfFailing) {
  controller_.script({retrieved(), delta("x")},
                     {grpc::StatusCode::UNAVAILABLE, "the worker is gone"});
  EXPECT_THAT(load({question()}).outcomes[0].error, StartsWith("status UNAVAILABLE: "));
  controller_.script({delta("x")});
  EXPECT_NE(load({question()}).outcomes[0].error, "");
}

TEST_F(GrpcLoad, GivesUpOnAServerThatHangs) {
  auto result =
      std::async(std::launch::async, [&] { return load({question()}, {.timeout_s = 0.3}); });
  const auto call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(result.get().outcomes[0].error, "timeout: no whole answer within 0.3 s");
  EXPECT_TRUE(call->wait_cancelled());
}

TEST_F(GrpcLoad, CancelsWhatIsUnderWayWhenItEndsEarly) {
  std::vector<Request> requests{question(), question()};
  requests[1].at = std::chrono::milliseconds(20);
  requests[1].max_tokens = 1'000'000'000;  // more than the gateway takes: it fails at once
  auto result =
      std::async(std::launch::async, [&] { return load(requests, {.max_failures_in_row = 1}); });
  const auto call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  EXPECT_TRUE(call->wait_cancelled());
  const std::vector<Outcome> outcomes = result.get().outcomes;
  EXPECT_THAT(outcomes[0].error, StartsWith("stopped: 1 requests failed"));
  EXPECT_THAT(outcomes[1].error, StartsWith("status INVALID_ARGUMENT: "));
}

}  // namespace
}  // namespace ragcache::loadgen
