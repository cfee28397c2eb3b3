#include "common/rpc/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/rpc/deadline.h"
#include "common/rpc/status.h"

namespace ragcache {
namespace {

using ::testing::HasSubstr;

std::string socket_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()) + ".sock");
}

// Takes connections, greets as an HTTP/2 server does, and never reads or says anything after that:
// what clients see of a process that is stopped.
class MuteServer {
 public:
  MuteServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(name);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
    thread_ = std::thread([this] { greet(); });
  }
  ~MuteServer() {
    shutdown(listener_, SHUT_RDWR);  // ends accept()
    thread_.join();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  void greet() {
    constexpr uint8_t kSettings[9] = {0, 0, 0, 4};  // a frame of that type, empty
    for (;;) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      connections_.push_back(connection);
      send(connection, kSettings, sizeof(kSettings), MSG_NOSIGNAL);
    }
  }

  const int listener_;
  std::string address_;
  std::vector<int> connections_;  // the thread's own until it has ended
  std::thread thread_;
};

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

TEST(RpcServer, LetsIdleClientsAskForSignsOfLife) {
  auto server = RpcServer::start("127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = make_channel(
      (*server)->address(), {.time = std::chrono::seconds(1), .timeout = std::chrono::seconds(20)});
  ASSERT_TRUE(channel->WaitForConnected(deadline_in(std::chrono::seconds(20))));
  // By default gRPC's servers cut off who asks a third time.
  EXPECT_FALSE(
      channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline_in(std::chrono::seconds(6))));
}

TEST(RpcChannel, EndsCallsToAPeerThatHangs) {
  const MuteServer server;
  const auto channel = make_channel(server.address(), {.time = std::chrono::milliseconds(100),
                                                       .timeout = std::chrono::milliseconds(500)});
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(deadline_in(std::chrono::seconds(30)));
  const grpc::Slice byte("x");
  const grpc::ByteBuffer request(&byte, 1);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/a.Service/Call", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

// Where a call ends, gRPC's threads would end themselves with the last channel, and abort.
TEST(RpcChannel, IsNotDestroyedByTheEndOfACall) {
  struct Call {
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    std::optional<grpc::ClientContext> context{std::in_place};  // refers to the channel
  };
  const MuteServer server;
  const grpc::Slice byte("x");
  Call call{.request = grpc::ByteBuffer(&byte, 1)};
  std::promise<void> let_go, ended;
  std::weak_ptr<grpc::Channel> channel;
  {
    const auto made = make_channel(server.address());
    channel = made;
    grpc::GenericStub(made).UnaryCall(&*call.context, "/a.Service/Call", {}, &call.request,
                                      &call.response, [&](const grpc::Status&) {
                                        let_go.get_future().wait();
                                        call.context.reset();
                                        ended.set_value();
                                      });
    call.context->TryCancel();
  }
  let_go.set_value();
  ended.get_future().wait();
  EXPECT_FALSE(channel.expired());
  make_channel(server.address());
  EXPECT_TRUE(channel.expired());
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
