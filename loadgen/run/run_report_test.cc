#include "loadgen/run/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace ragcache::loadgen {
namespace {

using testing::HasSubstr;
using testing::Not;

Outcome outcome_of(std::string error) {
  Outcome outcome;
  outcome.end = std::chrono::milliseconds(10);
  outcome.error = std::move(error);
  return outcome;
}

RunReport report_of(std::vector<Outcome> outcomes, uint64_t warm_up) {
  const std::vector<std::vector<std::string>> documents(outcomes.size());
  Workload workload{.name = "w"};
  workload.requests.resize(outcomes.size());
  return make_run_report(workload, documents, {.outcomes = std::move(outcomes)}, warm_up, 1);
}

TEST(RunReport, FailsWithItsWarmUp) {
  const RunReport report =
      report_of({outcome_of("status 503: busy"), outcome_of("timeout: late"),
                 outcome_of("status 503: full"), outcome_of(""), outcome_of("")},
                4);
  EXPECT_EQ(report.summary.requests, 1u);
  EXPECT_EQ(report.summary.answered, 1u);
  const auto json = to_json(report);
  EXPECT_EQ(json["errors"], nlohmann::ordered_json::object());
  EXPECT_EQ(json["warm_up_errors"].size(), 2u);
  EXPECT_EQ(json["warm_up_errors"]["status 503"], 2);
  EXPECT_EQ(json["warm_up_errors"]["timeout"], 1);
  EXPECT_THAT(to_text(report), HasSubstr("failed in the warm-up: status 503"));
  const absl::Status status = check_answered(report);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()),
            "3 of the warm-up's 4 requests failed, the first by status 503: busy");
}

TEST(RunReport, TellsOfFailuresThatCountFirst) {
  const RunReport report =
      report_of({outcome_of("timeout: late"), outcome_of(""), outcome_of("closed: x")}, 1);
  EXPECT_EQ(std::string(check_answered(report).message()),
            "1 of 2 requests failed, the first by closed: x");
}

TEST(RunReport, IsWellIfAllWereAnswered) {
  const RunReport report = report_of({outcome_of(""), outcome_of("")}, 1);
  EXPECT_TRUE(check_answered(report).ok());
  EXPECT_EQ(to_json(report)["warm_up_errors"], nlohmann::ordered_json::object());
  EXPECT_THAT(to_text(report), Not(HasSubstr("failed")));
}

TEST(RunReport, TellsWhatWasSentAgain) {
  std::vector<Outcome> outcomes{outcome_of(""), outcome_of("")};
  EXPECT_THAT(to_text(report_of(outcomes, 0)), Not(HasSubstr("sent again")));
  outcomes[1].resent = true;
  const RunReport report = report_of(outcomes, 0);
  EXPECT_THAT(to_text(report), HasSubstr("sent again on a new connection"));
  EXPECT_EQ(to_json(report)["resent"], 1);
}

}  // namespace
}  // namespace ragcache::loadgen
