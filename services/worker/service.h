#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "ragcache/worker/v1/worker.grpc.pb.h"
#include "services/worker/engine/messages.h"
#include "services/worker/profile/profiler.h"

namespace ragcache::worker {

// WorkerService over gRPC's callback API: turns requests into the engine's commands and its events
// into responses. Knows which stream is the current one; reactions copy, post and return.
class Service final : public v1::WorkerService::CallbackService {
 public:
  // `post` hands a command to the engine: thread safe, does not block. `profiler` outlives it.
  Service(v1::GetInfoResponse info, std::function<void(Command)> post, Profiler& profiler);
  ~Service() override;

  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::GetInfoRequest* request,
                                    v1::GetInfoResponse* response) override;
  grpc::ServerWriteReactor<v1::ProfileResponse>* Profile(
      grpc::CallbackServerContext* context, const v1::ProfileRequest* request) override;

  // The engine's events, in order. Those of a stream that has ended are dropped.
  void deliver(std::vector<Event> events);
  // Ends the current stream and refuses new ones: the server is about to stop.
  void shut_down();

 private:
  class Stream;

  // The stream's first message was Open: makes it the current one. Tells its number, or why not.
  absl::StatusOr<uint64_t> open(std::shared_ptr<Stream> stream, uint64_t term, uint64_t command);
  void closed(uint64_t number);

  // Constant after construction.
  const v1::GetInfoResponse info_;
  const std::function<void(Command)> post_;
  Profiler& profiler_;

  std::mutex mutex_;  // guards what follows
  uint64_t highest_term_ = 0;
  uint64_t streams_ = 0;
  std::shared_ptr<Stream> current_;  // null: none is open
  uint64_t current_number_ = 0;
  bool shutting_down_ = false;
};

}  // namespace ragcache::worker
