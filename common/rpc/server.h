#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"

namespace ragcache {

// Largest message either side sends or takes: a few very long documents with text and tokens.
inline constexpr int kMaxMessageBytes = 64 << 20;

// A started gRPC server with the standard health service and reflection. The services must outlive
// it. Stops in the destructor.
class RpcServer {
 public:
  // `address` is host:port (port 0: the system chooses) or unix:PATH. A stale socket file is
  // replaced, one that a live server listens on is not. FAILED_PRECONDITION if the address is in
  // use or cannot be bound, with what to do about it. Longer messages than `max_receive_bytes` end
  // their call with RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<RpcServer>> start(const std::string& address,
                                                          std::span<grpc::Service* const> services,
                                                          int max_receive_bytes = kMaxMessageBytes);
  ~RpcServer();

  // Refuses new calls, lets open ones end until `grace` has passed, then cancels them. Idempotent.
  void stop(Duration grace = std::chrono::seconds(5));

  // What the standard health service answers for the whole server; SERVING from the start on.
  void set_serving(bool serving);

  // As clients should dial it.
  const std::string& address() const { return address_; }

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// How a client finds out about a peer that hangs, or vanished without a word: when nothing came
// from it for `time` it is asked for a sign of life, with or without calls; if none comes within
// `timeout`, the connection and its calls end as UNAVAILABLE.
struct Keepalive {
  Duration time = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(10);
};

// A channel with this project's message limit, keepalive and quick reconnects. Any thread may let
// go of it; one that nobody uses is destroyed when the next is made, or not at all.
// REQUIRES: called outside of gRPC's reactions.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, Keepalive keepalive = {});

}  // namespace ragcache
