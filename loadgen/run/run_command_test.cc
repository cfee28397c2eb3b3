#include "loadgen/run/run_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ragcache::loadgen {
namespace {

using testing::HasSubstr;

const Workload kRecording{.name = "ragpulse", .has_times = true};
const Workload kQuestions{.name = "mmlu"};

std::string error(const RunCommand& command, const Workload& workload) {
  const absl::Status status = arrivals_of(command, workload).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(RunCommand, SendsARecordingAtItsTimesUnlessTold) {
  RunCommand command;
  command.seed = 7;
  command.speedup = 10;
  absl::StatusOr<ArrivalOptions> options = arrivals_of(command, kRecording);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->process, "recorded");
  EXPECT_EQ(options->speedup, 10);
  EXPECT_EQ(options->seed, 7u);

  command.speedup.reset();
  command.rate = 3;
  command.arrivals.process = "bursts";
  options = arrivals_of(command, kRecording);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->process, "bursts");
  EXPECT_EQ(options->rate, 3);
}

TEST(RunCommand, DrawsTheTimesOfWhatHasNone) {
  const absl::StatusOr<ArrivalOptions> options = arrivals_of({}, kQuestions);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->process, "poisson");
  EXPECT_EQ(options->rate, 1);
}

TEST(RunCommand, RefusesWhatDoesNothing) {
  RunCommand command;
  command.rate = 3;
  EXPECT_THAT(error(command, kRecording), HasSubstr("--rate: is of arrivals that are drawn"));
  command.arrivals.process = "recorded";
  EXPECT_THAT(error(command, kRecording), HasSubstr("--rate: "));
  command = {};
  command.speedup = 2;
  EXPECT_THAT(error(command, kQuestions),
              HasSubstr("--speedup: is of recorded arrivals, these are poisson"));
  command.arrivals.process = "poisson";
  EXPECT_THAT(error(command, kRecording), HasSubstr("--speedup: "));
}

}  // namespace
}  // namespace ragcache::loadgen
