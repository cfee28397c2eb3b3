#include "common/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/rpc/status.h"

namespace ragcache {
namespace {

using ::testing::HasSubstr;

std::string socket_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()) + ".sock");
}

TEST(RpcServer, RefusesAnAddressInUseAndSaysSo) {
  auto first = RpcServer::start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = RpcServer::start((*first)->address(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr((*first)->address()));
}

TEST(RpcServer, ReplacesAStaleSocketButNotALiveOne) {
  const std::string path = socket_path("stale");
  const std::string address = "unix:" + path;
  std::ofstream(path) << "";  // what a killed process leaves behind
  auto first = RpcServer::start(address, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(RpcServer::start(address, {}).ok());
  (*first)->stop();
  EXPECT_TRUE(RpcServer::start(address, {}).ok());
}

TEST(RpcServer, RefusesASocketPathThatDoesNotFit) {
  auto server = RpcServer::start("unix:/tmp/" + std::string(200, 'x'), {});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("shorter state folder"));
}

TEST(RpcServer, AnswersHealthChecksUntilStopped) {
  auto server = RpcServer::start("127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  auto channel = make_channel((*server)->address());
  EXPECT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(5)));
  (*server)->stop();
  (*server)->stop();
}

TEST(RpcStatus, KeepsCodeAndMessageBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(from_grpc_status(to_grpc_status(status)), status);
  }
  EXPECT_TRUE(to_grpc_status(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace ragcache
