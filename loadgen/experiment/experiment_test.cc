#include "loadgen/experiment/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "loadgen/experiment/experiment_report.h"
#include "loadgen/report/text_table.h"
#include "tests/fakes/fake_openai.h"

namespace ragcache::loadgen {
namespace {

using fakes::FakeOpenAi;
using fakes::FakeStream;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class ExperimentTest : public testing::Test {
 protected:
  static Contender contender(const std::string& name, const FakeOpenAi& server) {
    Contender made{.name = name, .url = server.url()};
    made.endpoint.url = server.url();
    return made;
  }

  // Their prompts tell them apart.
  static std::vector<Request> requests(int count) {
    std::vector<Request> made;
    for (int i = 0; i < count; ++i) {
      std::string text = "q";
      text += std::to_string(i);
      text += '.';
      made.push_back({.prompt = ChatPrompt{std::move(text)}});
    }
    return made;
  }

  static ExperimentOptions options(uint64_t warm_up, uint64_t counted) {
    ExperimentOptions made{.warm_up = warm_up, .requests = counted, .baseline = "slow"};
    made.rounds = 1;
    made.rate_shares = {0.5, 1};
    made.capacity_rps = 1000;
    made.arrivals = [counted](double rate) -> absl::StatusOr<std::vector<Duration>> {
      std::vector<Duration> at;
      for (uint64_t i = 0; i < counted; ++i) {
        at.push_back(
            std::chrono::nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(i) / rate)));
      }
      return at;
    };
    return made;
  }

  // Numbers of the questions in the order in which they came.
  static std::vector<int> asked(const FakeOpenAi& server) {
    std::vector<int> numbers;
    for (const std::string& body : server.requests()) {
      numbers.push_back(std::stoi(body.substr(body.find("\"q") + 2)));
    }
    return numbers;
  }

  FakeOpenAi slow_{FakeStream{.tokens = 1, .first_token = milliseconds(100)}};
  FakeOpenAi quick_{FakeStream{.tokens = 1, .first_token = milliseconds(5)}};
};

TEST_F(ExperimentTest, WarmsUpAndSendsTheSameToEachAtEveryRateAndRound) {
  std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  contenders[1].learns = false;
  ExperimentOptions two_rounds = options(10, 2);
  two_rounds.rounds = 2;
  const auto result = run_experiment(contenders, requests(12), two_rounds);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->status.ok()) << result->status;
  ASSERT_EQ(result->runs.size(), 4u);  // two rates of two contenders
  for (const ExperimentRun& run : result->runs) {
    EXPECT_EQ(run.summary.requests, 4u);
    EXPECT_EQ(run.summary.answered, 4u);
    EXPECT_EQ(run.rounds.size(), 2u);
    EXPECT_THAT(result->round_ratios_vs(run, run.contender), ElementsAre(1, 1));
    // Two requests, the second after 2 or 1 ms, of which even the quick one takes 5.
    EXPECT_LT(run.summary.throughput_rps, 2 / 0.006);
  }
  EXPECT_EQ(asked(slow_).size(), 4 * 12u);
  // One that learns nothing is only started up.
  EXPECT_EQ(asked(quick_).size(), 4 * 10u);
  std::vector<int> counted = asked(quick_);
  counted.resize(10);
  counted.erase(counted.begin(), counted.begin() + 8);
  EXPECT_THAT(counted, UnorderedElementsAre(10, 11));
}

TEST_F(ExperimentTest, ComparesMeansAndFindsTheThroughputWithinTheObjective) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  ExperimentOptions strict = options(1, 4);
  strict.slo_factor = 1;
  const auto result = run_experiment(contenders, requests(5), strict);
  ASSERT_TRUE(result.ok()) << result.status();
  const ExperimentRun& quick = result->runs[1];
  EXPECT_EQ(quick.contender, "quick");
  EXPECT_GT(*result->ratio_vs(quick, "slow"), 2);
  EXPECT_EQ(*result->ratio_vs(quick, "quick"), 1);
  EXPECT_FALSE(result->ratio_vs(quick, "none").has_value());
  EXPECT_EQ(result->slo_ttft_ms, result->runs[0].summary.ttft_ms.mean);
  EXPECT_EQ(result->throughput_at_slo.at("quick").rps, 1000);
  EXPECT_TRUE(result->throughput_at_slo.at("quick").at_least);
  EXPECT_GE(result->throughput_at_slo.at("slow").rps, 500);
}

TEST_F(ExperimentTest, MeasuresWhatTheBaselineSustains) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  ExperimentOptions measured = options(0, 8);
  measured.capacity_rps = 0;
  measured.capacity_requests = 8;
  measured.load.max_in_flight = 4;  // of the open loop, not of the eight at once
  const auto result = run_experiment(contenders, requests(8), measured);
  ASSERT_TRUE(result.ok()) << result.status();
  // Eight at once, all of them answered after 100 ms or a little more.
  EXPECT_LE(result->capacity_rps, 80);
  EXPECT_GT(result->capacity_rps, 1);
  EXPECT_EQ(result->runs[0].rate, 0.5 * result->capacity_rps);
}

TEST_F(ExperimentTest, LetsNoAnswerEndBeforeItsLength) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  ASSERT_TRUE(run_experiment(contenders, requests(3), options(1, 2)).ok());
  EXPECT_THAT(slow_.requests(), testing::SizeIs(6));  // at two rates
  EXPECT_THAT(slow_.requests(), testing::Each(HasSubstr("\"ignore_eos\":true")));
}

TEST_F(ExperimentTest, OnlyPredictsWithoutRounds) {
  std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  contenders[0].predicted_prefill_seconds = {0.2, 0.2};
  contenders[1].predicted_prefill_seconds = {0.1, 0.1};
  ExperimentOptions none = options(0, 2);
  none.capacity_rps = 0;
  none.rounds = 0;
  const auto result = run_experiment(contenders, requests(2), none);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->capacity_rps, 5);
  ASSERT_EQ(result->runs.size(), 4u);
  // At the whole capacity the second request comes as the first one ends.
  EXPECT_DOUBLE_EQ(*result->runs[2].predicted_ttft_ms, 200);
  EXPECT_DOUBLE_EQ(*result->runs[3].predicted_ttft_ms, 100);
  EXPECT_FALSE(result->ratio_vs(result->runs[3], "slow").has_value());
  EXPECT_TRUE(slow_.requests().empty());
  // What it sustains is known: the same shares of that.
  none.capacity_rps = 50;
  const auto scaled = run_experiment(contenders, requests(2), none);
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_DOUBLE_EQ(*scaled->runs[2].predicted_ttft_ms, 20);
  EXPECT_DOUBLE_EQ(*scaled->runs[3].predicted_ttft_ms, 10);
  none.capacity_rps = 0;
  contenders[0].predicted_prefill_seconds.clear();
  EXPECT_FALSE(run_experiment(contenders, requests(2), none).ok());
}

TEST_F(ExperimentTest, KeepsWhatItHasWhenOneFails) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  quick_.set_stream({.end = FakeStream::End::kStatus});
  ExperimentOptions failing = options(0, 4);
  failing.load.max_failures_in_row = 2;
  const auto result = run_experiment(contenders, requests(4), failing);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("quick at 500 requests/s"));
  ASSERT_GE(result->runs.size(), 1u);
  EXPECT_EQ(result->runs[0].summary.answered, 4u);
  EXPECT_TRUE(result->runs[0].summary.complete);
  if (result->runs.size() > 1) {
    EXPECT_FALSE(result->runs[1].summary.complete);
    EXPECT_THAT(result->runs[1].summary.stopped_because, HasSubstr("2 requests failed"));
    EXPECT_FALSE(result->ratio_vs(result->runs[1], "slow").has_value());
  }
  // Nothing that fails meets the objective.
  if (result->throughput_at_slo.contains("quick")) {
    EXPECT_EQ(result->throughput_at_slo.at("quick").rps, 0);
  }
}

TEST_F(ExperimentTest, ComparesNoMeanOfThoseThatHappenToBeAnswered) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  ExperimentOptions crowded = options(0, 4);
  crowded.rate_shares = {1};
  // Four come within 4 ms: the third and fourth are not sent to one that still has the first two.
  crowded.load.max_in_flight = 2;
  slow_.set_stream({.tokens = 1, .first_token = milliseconds(500)});
  const auto result = run_experiment(contenders, requests(4), crowded);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->status.ok());
  ASSERT_EQ(result->runs.size(), 2u);
  const ExperimentRun& slow = result->runs[0];
  EXPECT_TRUE(slow.status.ok()) << slow.status;  // it ran to its end
  EXPECT_EQ(slow.summary.answered, 2u);
  EXPECT_FALSE(slow.whole());
  EXPECT_FALSE(result->ratio_vs(slow, "slow").has_value());
  EXPECT_FALSE(result->ratio_vs(result->runs[1], "slow").has_value());
  EXPECT_TRUE(result->round_ratios_vs(result->runs[1], "slow").empty());
  // Nor is there an objective.
  EXPECT_FALSE(result->slo_ttft_ms.has_value());
  EXPECT_TRUE(result->throughput_at_slo.empty());
}

TEST_F(ExperimentTest, ComparesNoRunsOfSomeRoundsWithThoseOfAll) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  ExperimentOptions ended = options(0, 2);
  ended.rate_shares = {1};
  ended.rounds = 2;
  // Before the last run, which is the first one's: they go by turns.
  int asked_for = 0;
  ended.interrupted = [&asked_for]() -> absl::Status {
    return ++asked_for == 4 ? absl::CancelledError("ended by SIGINT") : absl::OkStatus();
  };
  const auto result = run_experiment(contenders, requests(2), ended);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->runs.size(), 2u);
  const ExperimentRun& slow = result->runs[0];
  const ExperimentRun& quick = result->runs[1];
  ASSERT_EQ(slow.rounds.size(), 1u);
  ASSERT_EQ(quick.rounds.size(), 2u);
  EXPECT_THAT(std::string(slow.status.message()), HasSubstr("ended by SIGINT"));
  EXPECT_FALSE(slow.summary.complete);
  EXPECT_TRUE(quick.summary.complete);
  EXPECT_FALSE(result->ratio_vs(quick, "slow").has_value());
  EXPECT_EQ(result->round_ratios_vs(quick, "slow").size(), 1u);
}

// Rounds of one answer each, after these times.
ExperimentRun run_of(const std::string& name, const std::vector<double>& round_ttft_ms,
                     double predicted_ttft_ms) {
  ExperimentRun run{.contender = name, .rate = 1, .rate_share = 1};
  LoadResult load;
  for (const double ttft_ms : round_ttft_ms) {
    run.rounds.push_back({.ttft_ms = ttft_ms, .whole = true});
    Outcome outcome;
    outcome.first_token = outcome.end = std::chrono::microseconds(std::lround(1e3 * ttft_ms));
    load.outcomes.push_back(outcome);
  }
  run.summary = summarize(load, 0);
  run.predicted_ttft_ms = predicted_ttft_ms;
  return run;
}

TEST(ExperimentResult, TellsTheMedianOfTheRoundsAndWhatIsReachedOfThePrediction) {
  ExperimentResult result;
  // One round of the baseline is an outlier: the ratio of all is 4.5.
  result.runs = {run_of("none", {200, 1200, 400}, 100), run_of("ragcache", {100, 100, 200}, 20)};
  const ExperimentRun& none = result.runs[0];
  const ExperimentRun& ragcache = result.runs[1];
  EXPECT_THAT(result.round_ratios_vs(ragcache, "none"), ElementsAre(2, 12, 2));
  EXPECT_DOUBLE_EQ(*result.ratio_vs(ragcache, "none"), 4.5);
  EXPECT_DOUBLE_EQ(*result.median_ratio_vs(ragcache, "none"), 2);
  EXPECT_DOUBLE_EQ(*result.predicted_ratio_vs(ragcache, "none"), 5);
  EXPECT_DOUBLE_EQ(*result.share_of_predicted(ragcache, "none"), 0.9);
  EXPECT_DOUBLE_EQ(*result.share_of_predicted(none, "none"), 1);
  EXPECT_FALSE(result.median_ratio_vs(ragcache, "gpu-lru").has_value());
  EXPECT_FALSE(result.share_of_predicted(ragcache, "gpu-lru").has_value());

  const auto json = to_json(ExperimentReport{.ratios = {"none", "gpu-lru"}}, result)["runs"][1];
  EXPECT_DOUBLE_EQ(json["ratio_vs_median"]["none"], 2);
  EXPECT_DOUBLE_EQ(json["of_predicted"]["none"], 0.9);
  EXPECT_TRUE(json["of_predicted"]["gpu-lru"].is_null());

  result.runs[0].status = absl::CancelledError("ended by SIGINT");
  EXPECT_FALSE(result.median_ratio_vs(ragcache, "none").has_value());
  EXPECT_FALSE(result.share_of_predicted(ragcache, "none").has_value());
}

TEST_F(ExperimentTest, EndsWhenItIsInterrupted) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  ExperimentOptions ended = options(0, 2);
  int asked_for = 0;
  ended.interrupted = [&asked_for]() -> absl::Status {
    return ++asked_for == 2 ? absl::CancelledError("ended by SIGINT") : absl::OkStatus();
  };
  const auto result = run_experiment(contenders, requests(2), ended);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->status.code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(result->runs.size(), 1u);
  EXPECT_EQ(result->runs[0].contender, "slow");
  EXPECT_TRUE(quick_.requests().empty());
}

TEST_F(ExperimentTest, CountsTheDocumentsOfPromptsOfTokens) {
  // 60 tokens are cached, as the server tells, which knows of one document.
  const auto segment = [](size_t tokens) { return std::vector<TokenId>(tokens, 1); };
  const TokenPrompt prompt{.segments = {segment(10), segment(20), segment(30), segment(40)},
                           .tail = segment(5),
                           .documents = {"a", "b", "c"}};
  ExperimentOptions one = options(0, 2);
  one.rate_shares = {1};
  const std::vector<Contender> contenders{contender("slow", slow_)};
  const auto result = run_experiment(contenders, {{.prompt = prompt}, {.prompt = prompt}}, one);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->runs.size(), 1u);
  const Summary& summary = result->runs[0].summary;
  EXPECT_EQ(summary.documents, 6u);
  EXPECT_EQ(summary.cached_documents, 4u);  // 10 + 20 + 30 tokens are all of "a" and "b"
}

TEST_F(ExperimentTest, RunsTheLowestRateFirst) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  ExperimentOptions downwards = options(0, 2);
  downwards.rate_shares = {1, 0.5};
  const auto result = run_experiment(contenders, requests(2), downwards);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->runs[0].rate, 500);
  EXPECT_EQ(result->slo_ttft_ms, 5 * result->runs[0].summary.ttft_ms.mean);
}

TEST_F(ExperimentTest, EndsWithTheReasonWhenOneAnswersNothing) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  slow_.set_stream({.end = FakeStream::End::kStatus});
  const auto result = run_experiment(contenders, requests(2), options(0, 2));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("no model"));
}

TEST_F(ExperimentTest, SaysWhatCannotBe) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  const auto message = [&](const ExperimentOptions& options) {
    return std::string(run_experiment(contenders, requests(5), options).status().message());
  };
  EXPECT_THAT(message(options(3, 3)), HasSubstr("--requests: the workload has 5"));
  ExperimentOptions other = options(1, 1);
  other.baseline = "none";
  EXPECT_THAT(message(other), HasSubstr("--baseline: none"));
  other = options(1, 1);
  other.rate_shares = {0.3, 0};
  EXPECT_THAT(message(other), HasSubstr("--rates: has 0"));
  other.rate_shares = {0.3, 0.6, 0.3};
  EXPECT_THAT(message(other), HasSubstr("--rates: has 0.3 twice"));
  const std::vector<Contender> twice{contenders[0], contenders[0]};
  EXPECT_THAT(std::string(run_experiment(twice, requests(5), options(1, 1)).status().message()),
              HasSubstr("slow twice"));
}

TEST_F(ExperimentTest, ReportsWithTheKeysThatOthersRead) {
  const std::vector<Contender> contenders{contender("none", slow_), contender("ragcache", quick_)};
  quick_.set_stream({.tokens = 2, .first_token = milliseconds(5)});
  ExperimentOptions both = options(1, 2);
  both.baseline = "none";
  const auto result = run_experiment(contenders, requests(3), both);
  ASSERT_TRUE(result.ok()) << result.status();
  const nlohmann::ordered_json json = to_json(
      ExperimentReport{.title = "t", .workload = "mmlu", .ratios = {"none", "gpu-lru"}}, *result);
  EXPECT_EQ(json["workload"], "mmlu");
  const auto& run = json["runs"][1];
  EXPECT_EQ(run["mode"], "ragcache");
  EXPECT_EQ(run["rate"], 500);
  EXPECT_EQ(run["rate_share"], 0.5);
  for (const char* key : {"mean", "p50", "p90", "p99"}) {
    for (const char* figure : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
      EXPECT_TRUE(run[figure][key].is_number()) << figure << key;
    }
  }
  EXPECT_DOUBLE_EQ(run["token_hit_ratio"], 0.6);  // as the server told
  EXPECT_DOUBLE_EQ(run["ceiling"], 2.5);
  EXPECT_DOUBLE_EQ(run["scheduling_us"]["p50"], 12);
  EXPECT_DOUBLE_EQ(run["scheduling_us"]["p99"], 12);
  EXPECT_DOUBLE_EQ(run["search_not_overlapped_ms"], 1.5);
  EXPECT_TRUE(json["runs"][0]["tpot_ms"]["mean"].is_null());  // its answers have one token
  EXPECT_TRUE(run["throughput_rps"].is_number());
  EXPECT_TRUE(run["document_hit_ratio"].is_null());  // it told of none
  EXPECT_GT(run["ratio_vs"]["none"], 1);
  EXPECT_TRUE(run["ratio_vs"]["gpu-lru"].is_null());
  EXPECT_EQ(run["round_ratio_vs"]["none"].size(), 1u);
  EXPECT_GT(run["round_ratio_vs"]["none"][0], 1);
  EXPECT_TRUE(run["round_ratio_vs"]["gpu-lru"].empty());
  EXPECT_TRUE(json["throughput_at_slo"]["ragcache"].is_number());
  EXPECT_TRUE(json["environment"].contains("commit"));
}

TEST_F(ExperimentTest, TellsWhatThereIsAfterEachRun) {
  const std::vector<Contender> contenders{contender("slow", slow_), contender("quick", quick_)};
  ExperimentOptions told = options(0, 2);
  std::vector<ExperimentResult> results;
  told.on_run = [&results](const ExperimentResult& so_far) -> absl::Status {
    results.push_back(so_far);
    return results.size() < 3 ? absl::OkStatus() : absl::ResourceExhaustedError("disk is full");
  };
  const auto result = run_experiment(contenders, requests(2), told);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::string(result->status.message()), "disk is full");
  ASSERT_EQ(results.size(), 3u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_FALSE(results[i].status.ok());
    ASSERT_EQ(results[i].runs.size(), i + 1);
    for (const ExperimentRun& run : results[i].runs) EXPECT_TRUE(run.whole());
  }
  EXPECT_FALSE(results[0].ratio_vs(results[0].runs[0], "quick").has_value());
  EXPECT_TRUE(results[1].ratio_vs(results[1].runs[0], "quick").has_value());
}

TEST_F(ExperimentTest, WritesItsJsonAfterEachRunAndAlsoIfTheBaselineFails) {
  const std::string file = testing::TempDir() + "loadgen_experiment/compare.json";
  std::filesystem::remove(file);
  const auto written = [&file] {
    std::ifstream stream(file);
    return nlohmann::json::parse(stream);
  };
  const std::vector<Contender> contenders{contender("slow", slow_)};
  ExperimentOptions twice = options(0, 2);
  std::vector<size_t> runs;
  twice.interrupted = [&]() -> absl::Status {  // before each run
    if (!std::filesystem::exists(file)) return absl::OkStatus();
    EXPECT_EQ(written()["complete"], false);
    runs.push_back(written()["runs"].size());
    return absl::OkStatus();
  };
  const ExperimentReport report{.title = "t", .json = file};
  ASSERT_TRUE(run_and_report(contenders, requests(2), twice, report).ok());
  EXPECT_THAT(runs, ElementsAre(1u));
  EXPECT_EQ(written()["complete"], true);
  EXPECT_EQ(written()["runs"].size(), 2u);

  slow_.set_stream({.end = FakeStream::End::kStatus});
  ExperimentOptions measured = options(0, 2);
  measured.capacity_rps = 0;
  EXPECT_FALSE(run_and_report(contenders, requests(2), measured, report).ok());
  EXPECT_THAT(written()["stopped_because"].get<std::string>(), HasSubstr("what slow sustains: "));
  EXPECT_TRUE(written()["capacity_rps"].is_null());
  EXPECT_TRUE(written()["runs"].empty());
}

// Cells stand at least two blanks apart.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = line.find_first_not_of(' '); at < line.size();) {
    const size_t end = std::min(line.find("  ", at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return cells;
}

TEST_F(ExperimentTest, PrintsTheMachineTheServersAndAllFigures) {
  const std::vector<Contender> contenders{contender("slow", slow_)};
  ExperimentOptions one = options(0, 2);
  one.rate_shares = {1};
  const auto result = run_experiment(contenders, requests(2), one);
  ASSERT_TRUE(result.ok()) << result.status();
  const ExperimentReport report{.title = "t", .ratios = {"slow"}};
  const std::string text = to_text(report, *result);
  EXPECT_THAT(text, StartsWith("t\ncommit: "));
  EXPECT_THAT(text, HasSubstr("\nprocessor: "));
  EXPECT_THAT(text, HasSubstr(str_cat("\nslow: ran already, at ", slow_.url(), "\n")));
  const size_t table = text.find("\nmode ") + 1;
  const size_t row = text.find('\n', table) + 1;
  const std::vector<std::string> header = cells_of(text.substr(table, row - 1 - table));
  const std::vector<std::string> cells = cells_of(text.substr(row, text.size() - 1 - row));
  ASSERT_EQ(header.size(), cells.size()) << text;
  std::map<std::string, std::string> figures;
  for (size_t i = 0; i < header.size(); ++i) figures[header[i]] = cells[i];
  const Summary& summary = result->runs[0].summary;
  EXPECT_EQ(figures["sched µs p50/p99"], "12/12");
  EXPECT_EQ(figures["answered/s"], fixed(summary.throughput_rps, 3));
  EXPECT_EQ(figures["late ms p99"], fixed(summary.client_delay_ms.p99, 3));
  EXPECT_EQ(figures["TPOT ms"], "–") << "answers have one token";
}

TEST_F(ExperimentTest, TellsHowServersWereStartedWithoutTheirKeys) {
  Contender started = contender("slow", slow_);
  started.command = {"serve it", "--api-key", "secret"};
  started.environment = {{"PYTHONPATH", "packages"}};
  ExperimentOptions none = options(0, 2);
  none.rounds = 0;
  const auto result = run_experiment({started}, requests(2), none);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto json = to_json(ExperimentReport{}, *result);
  EXPECT_EQ(json["commands"]["slow"], "env PYTHONPATH=packages 'serve it' --api-key ...");
}

}  // namespace
}  // namespace ragcache::loadgen
