#include "loadgen/experiment/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using testing::HasSubstr;

TEST(BesideThisProgram, IsWhereTheProgramLies) {
  EXPECT_TRUE(std::filesystem::exists(beside_this_program("loadgen_experiment_test")));
  EXPECT_FALSE(std::filesystem::exists(beside_this_program("no such program")));
}

class ServerProcessTest : public testing::Test {
 protected:
  ServerProcessTest() {
    folder_ = std::filesystem::temp_directory_path() /
              str_cat("server_process_test_", testing::UnitTest::GetInstance()->random_seed(), "_",
                      getpid());
    std::filesystem::create_directories(folder_);
  }
  ~ServerProcessTest() override { std::filesystem::remove_all(folder_); }

  auto start(const std::string& script, std::vector<std::pair<std::string, std::string>> env = {}) {
    return ServerProcess::start({{"sh", "-c", script}, std::move(env), log(), {}});
  }
  std::string log() const { return (folder_ / "log").string(); }
  std::string logged() const {
    std::ifstream file(log());
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(ServerProcessTest, SaysWhyAServerEndedBeforeItWasReady) {
  auto process = start("echo no such model >&2; exit 3");
  ASSERT_TRUE(process.ok()) << process.status();
  const absl::Status status =
      (*process)->wait_until([] { return false; }, "to be ready", std::chrono::seconds(60));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such model"));
}

TEST_F(ServerProcessTest, SaysThatThereIsNoSuchProgram) {
  const auto process = ServerProcess::start({{"/no/such/program"}, {}, log(), {}});
  EXPECT_EQ(process.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("/no/such/program"));
}

TEST_F(ServerProcessTest, HandsOnTheEnvironmentAndStopsByTerm) {
  auto process = start("trap 'echo got $WORD; exit 0' TERM; echo up; while :; do sleep 0.01; done",
                       {{"WORD", "heron"}});
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)
                  ->wait_until([this] { return logged().find("up") != std::string::npos; }, "up",
                               std::chrono::seconds(60))
                  .ok());
  EXPECT_TRUE((*process)->stop().ok());
  EXPECT_THAT(logged(), HasSubstr("got heron"));
  EXPECT_EQ((*process)->stop().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServerProcessTest, ReplacesVariablesOfThisProcess) {
  setenv("RAG_SERVER_PROCESS_TEST", "old", 1);
  auto process = start("echo got $RAG_SERVER_PROCESS_TEST; exec sleep 600",
                       {{"RAG_SERVER_PROCESS_TEST", "new"}});
  unsetenv("RAG_SERVER_PROCESS_TEST");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)
                  ->wait_until([this] { return logged().find("got") != std::string::npos; }, "up",
                               std::chrono::seconds(60))
                  .ok());
  EXPECT_THAT(logged(), HasSubstr("got new"));
}

TEST_F(ServerProcessTest, EndsItsWaitWhenInterrupted) {
  auto process = ServerProcess::start(
      {{"sleep", "600"}, {}, log(), [] { return absl::CancelledError("ended by SIGINT"); }});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ((*process)->wait_until([] { return false; }, "x", std::chrono::hours(1)).code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ServerProcessTest, GivesUpOnOneThatTakesTooLong) {
  auto process = start("exec sleep 600");
  ASSERT_TRUE(process.ok()) << process.status();
  const absl::Status status =
      (*process)->wait_until([] { return false; }, "to be ready", std::chrono::milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("to be ready"));
}

TEST(FreePort, GivesOneThatCanBeUsed) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_GT(*port, 1023);
}

}  // namespace
}  // namespace ragcache::loadgen
