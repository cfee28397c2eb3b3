#include "services/worker/profile/profiler.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

double model(uint32_t cached, uint32_t fresh) {
  return 1e-3 + fresh * 2e-4 + cached * fresh * 1e-8;
}

class Profile : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + absl::StrCat("profile_", getpid()); }
  void TearDown() override { std::filesystem::remove(path_); }

  struct Result {
    std::optional<PrefillProfile> profile;
    absl::Status status;
    size_t points = 0;
  };
  Result profile(bool again, uint32_t max_tokens = 8192, double slowness = 1,
                 const std::string& machine = "m", uint32_t room = 8192) {
    Profiler profiler(path_, {sha256("model"), machine}, max_tokens,
                      [&](uint32_t cached, uint32_t fresh, const Profiler::Answer& answer) {
                        if (fresh > room) return answer(absl::ResourceExhaustedError("full"));
                        answer(slowness * model(cached, fresh));
                      });
    Result result;
    profiler.profile(again, {.point =
                                 [&](size_t, uint32_t, uint32_t, double) {
                                   ++result.points;
                                   return true;
                                 },
                             .done = [&](const PrefillProfile& done) { result.profile = done; },
                             .failed = [&](absl::Status status) { result.status = status; }});
    return result;
  }

  std::string path_;
};

TEST_F(Profile, MeasuresEveryPointOnceAndAnswersFromItsFileForThisMachineAlone) {
  const Result first = profile(false);
  ASSERT_TRUE(first.profile.has_value()) << first.status;
  EXPECT_EQ(first.points, 30u);
  for (size_t i = 0; i < first.profile->cached_tokens.size(); ++i) {
    for (size_t j = 0; j < first.profile->new_tokens.size(); ++j) {
      EXPECT_DOUBLE_EQ(first.profile->seconds[i * first.profile->new_tokens.size() + j],
                       model(first.profile->cached_tokens[i], first.profile->new_tokens[j]));
    }
  }
  const Result saved = profile(false);
  EXPECT_EQ(saved.points, 0u);
  EXPECT_EQ(saved.profile->seconds, first.profile->seconds);
  EXPECT_EQ(saved.profile->key, first.profile->key);
  EXPECT_EQ(profile(true).points, 30u);
  EXPECT_EQ(profile(false, 8192, 1, "another").points, 30u);
  std::ofstream(path_) << "{\"model_fingerprint\": 7}";
  EXPECT_EQ(profile(false).points, 30u);
}

TEST_F(Profile, StaysWithinTheContextAndItsTime) {
  const Result small = profile(true, 600);
  EXPECT_EQ(small.profile->cached_tokens, (std::vector<uint32_t>{0, 512}));
  EXPECT_EQ(small.profile->new_tokens, (std::vector<uint32_t>{16, 64, 128, 256, 512}));
  EXPECT_EQ(small.points, 5u + 2);
  // The rest goes on as it began.
  const Result slow = profile(true, 8192, 200);
  EXPECT_GT(slow.points, 10u);
  EXPECT_LT(slow.points, 30u);
  for (size_t i = 0; i < slow.profile->seconds.size(); ++i) {
    const size_t columns = slow.profile->new_tokens.size();
    EXPECT_NEAR(slow.profile->seconds[i],
                200 * model(slow.profile->cached_tokens[i / columns],
                            slow.profile->new_tokens[i % columns]),
                1e-9);
  }
}

TEST_F(Profile, GoesOnAsItBeganWhereBlocksAreLackingAndIsThenNotKept) {
  const Result full = profile(false, 8192, 1, "m", 200);
  ASSERT_TRUE(full.profile.has_value()) << full.status;
  EXPECT_EQ(full.points, 5u * 3);
  const size_t columns = full.profile->new_tokens.size();
  ASSERT_EQ(full.profile->seconds.size(), 5 * columns);
  for (size_t i = 0; i < full.profile->seconds.size(); ++i) {
    EXPECT_NEAR(
        full.profile->seconds[i],
        model(full.profile->cached_tokens[i / columns], full.profile->new_tokens[i % columns]),
        1e-9);
  }
  EXPECT_EQ(profile(false).points, 30u);
  EXPECT_EQ(profile(false).points, 0u);
  // One point makes no line.
  const Result point = profile(true, 8192, 1, "m", 16);
  EXPECT_EQ(point.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(profile(false).points, 0u);  // what was known stays
}

TEST_F(Profile, EndsOnceWhenMeasuringFailsOrNobodyListens) {
  Profiler profiler(path_, {sha256("model"), "m"}, 8192,
                    [](uint32_t, uint32_t fresh, const Profiler::Answer& answer) {
                      if (fresh > 64) return answer(absl::UnavailableError("stopping"));
                      answer(1.0);
                    });
  int ends = 0;
  const Profiler::Listener listener{
      .point = [](size_t, uint32_t, uint32_t, double) { return true; },
      .done = [&](const PrefillProfile&) { ADD_FAILURE(); },
      .failed = [&](const absl::Status&) { ++ends; }};
  profiler.profile(false, listener);
  EXPECT_EQ(ends, 1);
  Profiler::Listener deaf = listener;
  deaf.point = [](size_t, uint32_t, uint32_t, double) { return false; };
  profiler.profile(false, deaf);
  EXPECT_EQ(ends, 2);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace ragcache::worker
