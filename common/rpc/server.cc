#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/deadline.h"

namespace ragcache {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
// A client that asks an idle server for signs of life more often than this is cut off. gRPC's own
// clients never ask more than once a second.
constexpr Duration kPingInterval = std::chrono::milliseconds(500);

int to_ms(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

absl::Status in_use(const std::string& address) {
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot listen on ", address,
      ": the address is in use or not ours to bind; choose another or stop what listens there"));
}

// gRPC would silently take over a socket file that another server still listens on.
absl::Status clear_stale_socket(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " is longer than ",
                                                   sizeof(name.sun_path) - 1,
                                                   " bytes; choose a shorter state folder"));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError("socket() failed");
  const bool live = connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  close(fd);
  if (live) return in_use(path);
  unlink(path.c_str());
  return absl::OkStatus();
}

// gRPC ends its callback threads with the last channel that used them, and aborts where one of them
// does so (https://github.com/grpc/grpc/pull/32584). A channel's last user may well be a call that
// ends on such a thread; so channels are kept here, and destroyed where others are made.
void keep(const std::shared_ptr<grpc::Channel>& channel) {
  struct Kept {
    std::mutex mutex;
    std::vector<std::shared_ptr<grpc::Channel>> channels;
  };
  static Kept& kept = *new Kept;  // for good: calls may end after main()
  const std::lock_guard lock(kept.mutex);
  std::erase_if(kept.channels, [](const auto& other) { return other.use_count() == 1; });
  kept.channels.push_back(channel);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::start(
    const std::string& address, std::span<grpc::Service* const> services, int max_receive_bytes) {
  if (address.starts_with(kUnixPrefix)) {
    absl::Status cleared = clear_stale_socket(address.substr(kUnixPrefix.size()));
    if (!cleared.ok()) return cleared;
  }
  grpc::EnableDefaultHealthCheckService(true);
  static const bool reflection = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)reflection;

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             to_ms(kPingInterval));
  builder.SetMaxReceiveMessageSize(max_receive_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return in_use(address);

  std::string dial = address;
  if (!address.starts_with(kUnixPrefix)) {
    dial = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  }
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), std::move(dial)));
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

RpcServer::~RpcServer() { stop(); }

void RpcServer::stop(Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(deadline_in(grace));
  server_->Wait();
  server_.reset();
}

void RpcServer::set_serving(bool serving) {
  if (server_ != nullptr) server_->GetHealthCheckService()->SetServingStatus(serving);
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, Keepalive keepalive) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, to_ms(keepalive.time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, to_ms(keepalive.timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Else gRPC stops asking after two times in which this side had nothing to say.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  keep(channel);
  return channel;
}

}  // namespace ragcache
