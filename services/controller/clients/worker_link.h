#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "common/actor/actor.h"
#include "common/hash.h"
#include "ragcache/worker/v1/worker.grpc.pb.h"
#include "services/controller/messages.h"

namespace ragcache::controller {

// Keeps one Execute stream to a worker group: connects, tells the group, passes events and
// commands, reconnects with growing pauses when the stream ends. Asks each worker how long its
// prefills take, until it is told.
class WorkerLink {
 public:
  using Group =
      Address<WorkerConnected, WorkerEvent, WorkerLost, WorkerUnreachable, WorkerProfiled>;

  struct Connect {};

  // `model` is the fingerprint of the controller's own model file; a worker with another is
  // refused, for segment ids and token ids would mean different things on the two sides.
  WorkerLink(std::shared_ptr<grpc::Channel> channel, const Digest& model, Group group,
             ActorRef<WorkerLink> self);
  // Cancels the stream.
  ~WorkerLink();

  void handle(Connect connect, ActorContext& context);

  struct InfoArrived {
    absl::Status status;
    worker::v1::GetInfoResponse info;
  };
  void handle(InfoArrived arrived, ActorContext& context);

  // The worker has shown what it holds.
  struct StreamAccepted {
    uint64_t connection;
  };
  void handle(StreamAccepted accepted, ActorContext& context);

  // Written from here, not by the group: a write may serialise and go to the kernel at once, and
  // the group's decisions wait for neither.
  struct Command {
    uint64_t connection;
    worker::v1::ExecuteRequest request;
  };
  void handle(Command command, ActorContext& context);

  struct AskProfile {
    uint64_t connection;
  };
  void handle(AskProfile ask, ActorContext& context);

  // No table came: another measurement is under way, or this one failed.
  struct ProfileFailed {
    uint64_t connection;
  };
  void handle(ProfileFailed failed, ActorContext& context);

  struct StreamEnded {
    uint64_t connection;
    absl::Status status;
  };
  void handle(StreamEnded ended, ActorContext& context);

 private:
  class Stream;
  class Profile;

  void retry(const std::string& reason);

  const std::unique_ptr<worker::v1::WorkerService::Stub> stub_;
  const Digest model_;
  const Group group_;
  const ActorRef<WorkerLink> self_;

  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Profile> profile_;
  uint64_t connections_ = 0;
  Duration pause_;
  Duration profile_pause_;
  std::string last_reason_;
};

}  // namespace ragcache::controller
