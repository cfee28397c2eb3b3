#include "loadgen/report/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ragcache::loadgen {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::Pair;

Outcome answered(int at_ms, int sent_ms, int first_token_ms, int end_ms) {
  Outcome outcome;
  outcome.at = milliseconds(at_ms);
  outcome.sent = milliseconds(sent_ms);
  outcome.first_token = milliseconds(first_token_ms);
  outcome.end = milliseconds(end_ms);
  outcome.documents = {"a", "b"};
  outcome.prompt_tokens = 100;
  outcome.cached_tokens = 75;
  outcome.cached_documents = 1;
  outcome.completion_tokens = 5;
  outcome.scheduling_us = 0;
  return outcome;
}

Outcome failed(int at_ms, std::string error) {
  Outcome outcome;
  outcome.at = outcome.sent = outcome.end = milliseconds(at_ms);
  outcome.error = std::move(error);
  return outcome;
}

TEST(Summary, CountsLatencyFromWhenARequestShouldHaveBeenSent) {
  // Sent half a second late: that is part of what its user waits.
  const Summary summary = summarize({.outcomes = {answered(1000, 1500, 1700, 2100)}}, 0);
  EXPECT_EQ(summary.ttft_ms.p50, 700);
  EXPECT_EQ(summary.e2e_ms.p50, 1100);
  EXPECT_EQ(summary.tpot_ms.p50, 100);
  EXPECT_EQ(summary.client_delay_ms.max, 500);
}

TEST(Summary, LeavesOutTheWarmUp) {
  const Summary summary =
      summarize({.outcomes = {failed(0, "status 500: x"), answered(0, 0, 9000, 9000),
                              answered(1000, 1000, 1100, 1500), answered(2000, 2000, 2100, 3000)}},
                2);
  EXPECT_EQ(summary.requests, 2u);
  EXPECT_EQ(summary.answered, 2u);
  EXPECT_TRUE(summary.errors.empty());
  EXPECT_TRUE(summary.complete);
  EXPECT_EQ(summary.seconds, 2);
  EXPECT_EQ(summary.throughput_rps, 1);
  EXPECT_EQ(summary.output_tokens_per_s, 5);
  EXPECT_EQ(summary.ttft_ms.max, 100);
  EXPECT_EQ(summary.token_hit_ratio(), 0.75);
  EXPECT_EQ(summary.document_hit_ratio(), 0.5);
  EXPECT_EQ(summary.ceiling(), 4);
}

TEST(Summary, CountsFailuresByKindAndMeasuresOnlyAnswers) {
  LoadResult result;
  result.outcomes = {failed(0, "status 503: busy: later"), failed(0, "timeout: no whole answer"),
                     failed(0, "status 503: busy"), failed(0, "not sent: the load had ended"),
                     answered(0, 2, 10, 10)};
  result.status = absl::UnavailableError("20 requests failed");
  const Summary summary = summarize(result, 0);
  EXPECT_THAT(summary.errors,
              ElementsAre(Pair("not sent", 1), Pair("status 503", 2), Pair("timeout", 1)));
  EXPECT_EQ(summary.first_error, "status 503: busy: later");
  EXPECT_FALSE(summary.complete);
  EXPECT_EQ(summary.ttft_ms.mean, 10);
  EXPECT_EQ(summary.client_delay_ms.p50, 0);  // three at once, one 2 ms late
  EXPECT_EQ(summary.client_delay_ms.max, 2);
  EXPECT_EQ(summary.throughput_rps, 100);

  const auto json = to_json(summary);
  EXPECT_EQ(json["complete"], false);
  EXPECT_EQ(json["stopped_because"], "20 requests failed");
  EXPECT_EQ(json["errors"]["status 503"], 2);
  EXPECT_EQ(json["ttft_ms"]["p99"], 10);
}

TEST(Summary, CountsWhatWasSentAgain) {
  std::vector<Outcome> outcomes(4, answered(0, 0, 10, 20));
  outcomes[0].resent = outcomes[1].resent = outcomes[3].resent = true;
  outcomes[3].error = "closed: x";
  const Summary summary = summarize({.outcomes = outcomes}, 1);
  EXPECT_EQ(summary.resent, 2u);
  EXPECT_EQ(to_json(summary)["resent"], 2);
}

TEST(Summary, TellsAServerThatReusesNothingFromOneThatDoesNotSay) {
  Outcome silent = answered(0, 0, 10, 20);
  silent.cached_tokens = silent.cached_documents = std::nullopt;
  const auto untold = to_json(summarize({.outcomes = {silent}}, 0));
  EXPECT_TRUE(untold["token_hit_ratio"].is_null());
  EXPECT_TRUE(untold["document_hit_ratio"].is_null());
  EXPECT_TRUE(untold["ceiling"].is_null());

  Outcome cold = silent;
  cold.cached_tokens = 0;
  const auto told = to_json(summarize({.outcomes = {cold}}, 0));
  EXPECT_EQ(told["token_hit_ratio"], 0.0);
  EXPECT_TRUE(told["document_hit_ratio"].is_null());
  EXPECT_EQ(told["ceiling"], 1.0);
}

TEST(Summary, IsFiniteWithoutAnswers) {
  const auto json = to_json(summarize({}, 5));
  EXPECT_EQ(json["requests"], 0);
  EXPECT_EQ(json["throughput_rps"], 0.0);
  EXPECT_TRUE(json["token_hit_ratio"].is_null());
  EXPECT_TRUE(json["ceiling"].is_null());
}

TEST(Summary, KnowsNothingOfWhatHasNoSamples) {
  const auto none = to_json(summarize({}, 0));
  for (const char* figures : {"ttft_ms", "tpot_ms", "e2e_ms", "search_ms", "queue_ms"}) {
    for (const char* key : {"mean", "p50", "p90", "p99"}) {
      EXPECT_TRUE(none[figures].contains(key)) << figures << key;
      EXPECT_TRUE(none[figures][key].is_null()) << figures << key;
    }
  }
  EXPECT_TRUE(none["scheduling_us"]["p50"].is_null());
  EXPECT_TRUE(none["client_delay_ms"]["max"].is_null());

  Outcome of_one_token = answered(0, 0, 10, 10);
  of_one_token.completion_tokens = 1;
  const auto json = to_json(summarize({.outcomes = {of_one_token}}, 0));
  EXPECT_EQ(json["ttft_ms"]["mean"], 10.0);
  EXPECT_TRUE(json["tpot_ms"]["mean"].is_null());
  EXPECT_TRUE(json["search_ms"]["mean"].is_null()) << "the server did not tell";
  EXPECT_EQ(json["scheduling_us"]["p99"], 0.0) << "it told";
}

}  // namespace
}  // namespace ragcache::loadgen
