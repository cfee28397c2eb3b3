#include "loadgen/policy/policy_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "loadgen/policy/belady.h"
#include "loadgen/policy/replay.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Trace trace_of(const std::string& requests) {  // "ab c" is [a, b], [c]; each of 16 tokens
  Trace trace{.name = "test"};
  trace.requests.emplace_back();
  for (const char c : requests) {
    if (c == ' ') {
      trace.requests.emplace_back();
      continue;
    }
    const TraceDocument document{std::string(1, c), 16};
    auto it = std::find(trace.documents.begin(), trace.documents.end(), document);
    if (it == trace.documents.end()) it = trace.documents.insert(it, document);
    trace.requests.back().push_back(static_cast<uint32_t>(it - trace.documents.begin()));
  }
  return trace;
}

ReplayCounts replay_lru(const std::string& requests, uint64_t device, uint64_t host) {
  const Prefixes prefixes = prefixes_of(trace_of(requests), 16);
  return replay(prefixes, **controller::make_policy("lru"),
                controller::PolicyOptions::unmeasured_prefill_seconds(),
                {.device_tokens = device, .host_tokens = host, .bytes_per_token = 10});
}

TEST(Prefixes, SayWhenASegmentIsWantedAgain) {
  const Prefixes prefixes = prefixes_of(trace_of("ab b ab a"), 16);
  EXPECT_EQ(prefixes.working_set_blocks, 3u);  // a, b after a, b
  constexpr uint32_t kNever = Prefixes::kNever;
  EXPECT_THAT(prefixes.next_use,
              ElementsAre(ElementsAre(1, 2, 2), ElementsAre(2, kNever), ElementsAre(3, 3, kNever),
                          ElementsAre(kNever, kNever)));
  EXPECT_EQ(prefixes.chains[0][2].id, prefixes.chains[2][2].id);
  EXPECT_NE(prefixes.chains[0][2].id, prefixes.chains[1][1].id);
}

TEST(Replay, CountsHitsOnOneTier) {
  ReplayCounts counts = replay_lru("a b a b", 16, 0);
  EXPECT_EQ(counts.document_hits, 0u);
  EXPECT_EQ(counts.evictions, 3u);
  EXPECT_EQ(counts.bytes_moved, 0u);
  counts = replay_lru("a b a b", 32, 0);
  EXPECT_EQ(counts.document_hits, 2u);
  EXPECT_EQ(counts.token_hits, 32u);
  EXPECT_EQ(counts.device_token_hits, 32u);
  EXPECT_EQ(counts.evictions, 0u);
  EXPECT_EQ(counts.token_hit_ratio(), 0.5);
}

TEST(Replay, CountsHitsAndCopiesOnTwoTiers) {
  // a goes to the host for b, and is loaded for the third request; b finds no room there, since a
  // is in use, and is gone for the fourth. a then leaves the device without another copy.
  const ReplayCounts counts = replay_lru("a b a b", 16, 16);
  EXPECT_EQ(counts.documents, 4u);
  EXPECT_EQ(counts.document_hits, 1u);
  EXPECT_EQ(counts.device_token_hits, 0u);
  EXPECT_EQ(counts.evictions, 3u);
  EXPECT_EQ(counts.bytes_moved, 2 * 16 * 10u);
}

TEST(Replay, LeavesOutWhatDoesNotFitTheDevice) {
  const ReplayCounts counts = replay_lru("abc abc", 32, 0);
  EXPECT_EQ(counts.documents, 6u);
  EXPECT_EQ(counts.document_hits, 2u);
}

TEST(Belady, KeepsWhatIsWantedNext) {
  const Prefixes prefixes = prefixes_of(trace_of("a b c a b c a b c"), 16);
  BeladyPolicy belady(prefixes);
  const ReplayOptions options{.device_tokens = 32};
  const auto seconds = controller::PolicyOptions::unmeasured_prefill_seconds();
  EXPECT_EQ(replay(prefixes, belady, seconds, options).document_hits, 3u);
  EXPECT_EQ(replay(prefixes, **controller::make_policy("lru"), seconds, options).document_hits, 0u);
}

TEST(Replay, LooksAheadIntoTheQueue) {
  const Prefixes prefixes = prefixes_of(trace_of("a b c a b c a b c"), 16);
  const auto seconds = controller::PolicyOptions::unmeasured_prefill_seconds();
  auto hits = [&](const char* policy, uint32_t waiting) {
    return replay(prefixes, **controller::make_policy(policy), seconds,
                  {.device_tokens = 32, .waiting = waiting})
        .document_hits;
  };
  EXPECT_EQ(hits("adaptive", 1), 3u);
  EXPECT_EQ(hits("lru", 1), 0u);
}

class PolicyCommandTest : public ::testing::Test {
 protected:
  PolicyCommandTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream trace(folder_ + "tiny.jsonl");
    for (int i = 0; i < 40; ++i) {
      trace << "{\"documents\":[{\"id\":\"" << i % 7 << "\",\"tokens\":64},{\"id\":\"" << i % 3
            << "\",\"tokens\":64}]}\n";
    }
    command_.trace = folder_ + "tiny.jsonl";
  }

  std::string error() { return std::string(policy(command_).message()); }

  const std::string folder_ = ::testing::TempDir() + "loadgen_policy/";
  PolicyCommand command_;
};

TEST_F(PolicyCommandTest, WritesEveryRunAsJsonAndAChart) {
  command_.json = folder_ + "out/result.json";
  command_.plots = folder_ + "plots";
  ASSERT_TRUE(policy(command_).ok());
  const json report = json::parse(std::ifstream(command_.json));
  EXPECT_EQ(report["trace"], "tiny");
  EXPECT_EQ(report["working_set_tokens"], (7 + 21) * 64);
  EXPECT_TRUE(report["environment"].contains("commit"));
  EXPECT_EQ(report["runs"].size(), 10 * command_.sizes.size());
  for (const json& run : report["runs"]) {
    for (const char* field :
         {"policy", "history", "device_tokens", "host_tokens", "hit_ratio", "token_hit_ratio",
          "device_token_hit_ratio", "evictions", "bytes_moved", "ns_per_op"}) {
      EXPECT_TRUE(run.contains(field)) << field;
    }
    EXPECT_LE(run["device_token_hit_ratio"], run["token_hit_ratio"]);
  }
  std::ifstream plot(command_.plots + "/policy_tiny.svg");
  const std::string svg{std::istreambuf_iterator<char>(plot), {}};
  EXPECT_THAT(svg, HasSubstr("adaptive, forgetting"));
  EXPECT_GT(std::filesystem::file_size(command_.plots + "/policy_tiny.png"), 1000u);
}

TEST_F(PolicyCommandTest, PrintsWhatEvictionsCost) {
  command_.json = folder_ + "result.json";
  command_.policies = {"lru"};
  command_.sizes = {0.5};
  testing::internal::CaptureStdout();
  const absl::Status status = policy(command_);
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status;
  const json run = json::parse(std::ifstream(command_.json))["runs"][0];
  EXPECT_GT(run["evictions"], 0);
  EXPECT_GT(run["bytes_moved"], 0);
  const auto shows = [](const char* title, double figure, int decimals) {
    return ContainsRegex(str_cat(title, " +0\\.5000\nlru +", fixed(figure, decimals), "\n"));
  };
  EXPECT_THAT(out, shows("evictions", run["evictions"].get<double>(), 0));
  EXPECT_THAT(out, shows("MiB moved", run["bytes_moved"].get<double>() / (1 << 20), 1));
  EXPECT_THAT(out, shows("s of a request", run["ns_per_op"].get<double>() / 1e3, 1));
}

TEST_F(PolicyCommandTest, NamesWhatIsWrong) {
  command_.sizes = {0.5, 1.5};
  EXPECT_EQ(error(), "--sizes: is 1.5, must be above 0 and at most 1");
  command_.sizes = {0.5};
  command_.policies = {"lru", "mru"};
  EXPECT_THAT(error(), HasSubstr("--policies: has \"mru\", must be of adaptive, pgdsf"));
  command_.policies = {"lru"};
  command_.profile = folder_ + "profile.json";
  EXPECT_THAT(error(), HasSubstr("profile.json"));
  std::ofstream(command_.profile) << R"({"cached_tokens":[0],"new_tokens":[8],"seconds":[1]})";
  EXPECT_THAT(error(), HasSubstr("profile.json: new_tokens: has 1 values"));
  std::ofstream(command_.profile) << R"({"cached_tokens":[0],"new_tokens":"x","seconds":[1]})";
  EXPECT_THAT(error(), HasSubstr("new_tokens: must be a list"));
  std::ofstream(command_.profile) << R"({"cached_tokens":[0],"new_tokens":[8,9],"seconds":[1,2]})";
  EXPECT_EQ(error(), "");
  command_.trace = folder_ + "none.jsonl";
  EXPECT_THAT(error(), HasSubstr("none.jsonl: No such file"));
}

}  // namespace
}  // namespace ragcache::loadgen
