#include "services/controller/clients/worker_link.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <span>
#include <utility>

#include "common/log/log.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"

namespace ragcache::controller {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
// A worker that starts again is found within this time.
constexpr Duration kLongestPause = std::chrono::seconds(1);
constexpr Duration kInfoTimeout = std::chrono::seconds(5);
// A worker may be measuring for a controller that it does not know to be gone yet, or lack blocks.
constexpr Duration kFirstProfilePause = std::chrono::seconds(1);
constexpr Duration kLongestProfilePause = std::chrono::minutes(1);

}  // namespace

// Keeps itself alive until gRPC is done with it.
class WorkerLink::Stream
    : public grpc::ClientBidiReactor<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse> {
 public:
  // `epoch` is the worker's that is meant.
  Stream(uint64_t connection, uint64_t epoch, Group group, ActorRef<WorkerLink> link)
      : connection_(connection), epoch_(epoch), group_(std::move(group)), link_(link) {}

  void start(worker::v1::WorkerService::Stub& stub, std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    stub.async()->Execute(&context_, this);
    AddHold();  // write() is called from outside of reactions
    StartRead(&event_);
    StartCall();
  }

  void write(worker::v1::ExecuteRequest command) {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    commands_.push_back(std::move(command));
    if (commands_.size() == 1) StartWrite(&commands_.front());
  }

  void cancel() {
    context_.TryCancel();
    close();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return close();
    if (event_.has_snapshot() && event_.snapshot().worker_epoch() != epoch_) {
      refusal_ = "the worker was restarted while the controller connected";
      return cancel();
    }
    if (event_.has_snapshot() && event_.snapshot().last_page()) {
      link_.send(StreamAccepted{connection_});
    }
    group_.send(WorkerEvent{connection_, std::move(event_)});
    event_.Clear();
    StartRead(&event_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    commands_.pop_front();
    if (!ok || closed_) return;
    if (!commands_.empty()) StartWrite(&commands_.front());
  }

  void OnDone(const grpc::Status& status) override {
    link_.send(StreamEnded{connection_, refusal_.empty() ? from_grpc_status(status)
                                                         : absl::UnavailableError(refusal_)});
    self_.reset();
  }

 private:
  // No more commands.
  void close() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(closed_, true)) return;
    }
    RemoveHold();
  }

  const uint64_t connection_;
  const uint64_t epoch_;
  const Group group_;
  const ActorRef<WorkerLink> link_;
  std::shared_ptr<Stream> self_;
  grpc::ClientContext context_;
  worker::v1::ExecuteResponse event_;
  std::string refusal_;  // why this side ended the stream

  std::mutex mutex_;  // guards what follows
  bool closed_ = false;
  // The front is being written. Bounded by the requests in flight: the group sends each a few.
  std::deque<worker::v1::ExecuteRequest> commands_;
};

// The worker's table of prefill times, measured now or before. Keeps itself alive until gRPC is
// done with it. Without a table the group goes on with what it assumes.
class WorkerLink::Profile : public grpc::ClientReadReactor<worker::v1::ProfileResponse> {
 public:
  Profile(uint64_t connection, Group group, ActorRef<WorkerLink> link)
      : connection_(connection), group_(std::move(group)), link_(link) {}

  void start(worker::v1::WorkerService::Stub& stub, std::shared_ptr<Profile> self) {
    self_ = std::move(self);
    stub.async()->Profile(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_profile()) {
      group_.send(WorkerProfiled{connection_, std::move(*response_.mutable_profile())});
    } else {
      const worker::v1::ProfilePoint& point = response_.point();
      log::info("prefill measured", {{"point", ++points_},
                                     {"of", response_.points()},
                                     {"cached_tokens", point.cached_tokens()},
                                     {"new_tokens", point.new_tokens()},
                                     {"seconds", point.seconds()}});
    }
    response_.Clear();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
      log::info("the worker gave no table of its prefill times; it is asked again later",
                {{"reason", status.error_message()}});
      link_.send(ProfileFailed{connection_});
    }
    self_.reset();
  }

 private:
  const uint64_t connection_;
  const Group group_;
  const ActorRef<WorkerLink> link_;
  std::shared_ptr<Profile> self_;
  grpc::ClientContext context_;
  worker::v1::ProfileRequest request_;
  worker::v1::ProfileResponse response_;
  uint32_t points_ = 0;
};

WorkerLink::WorkerLink(std::shared_ptr<grpc::Channel> channel, const Digest& model, Group group,
                       ActorRef<WorkerLink> self)
    : stub_(worker::v1::WorkerService::NewStub(std::move(channel))),
      model_(model),
      group_(std::move(group)),
      self_(self),
      pause_(kFirstPause),
      profile_pause_(kFirstProfilePause) {}

WorkerLink::~WorkerLink() {
  if (profile_ != nullptr) profile_->cancel();
  if (stream_ != nullptr) stream_->cancel();
}

void WorkerLink::handle(Connect, ActorContext&) {
  struct Call {
    grpc::ClientContext context;
    worker::v1::GetInfoRequest request;
    worker::v1::GetInfoResponse response;
  };
  auto call = std::make_shared<Call>();
  call->context.set_deadline(deadline_in(kInfoTimeout));
  stub_->async()->GetInfo(
      &call->context, &call->request, &call->response,
      [call, self = self_](const grpc::Status& status) {
        self.send(InfoArrived{from_grpc_status(status), std::move(call->response)});
      });
}

void WorkerLink::handle(InfoArrived arrived, ActorContext&) {
  if (!arrived.status.ok()) return retry(std::string(arrived.status.message()));
  const auto theirs = std::span(arrived.info.model_fingerprint());
  if (!std::equal(theirs.begin(), theirs.end(), model_.begin(), model_.end(),
                  [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
    return retry("the worker serves another model than the controller: give both the same file");
  }
  const uint64_t connection = ++connections_;
  stream_ = std::make_shared<Stream>(connection, arrived.info.worker_epoch(), group_, self_);
  auto commands = Address<worker::v1::ExecuteRequest>::of_functions(
      [self = self_, connection](worker::v1::ExecuteRequest request) {
        self.send(Command{connection, std::move(request)});
      });
  group_.send(WorkerConnected{connection, std::move(arrived.info), std::move(commands)});
  stream_->start(*stub_, stream_);  // not before: its events follow WorkerConnected
}

// Not before: a worker that another controller has taken over refuses each new stream.
void WorkerLink::handle(StreamAccepted accepted, ActorContext&) {
  if (accepted.connection != connections_) return;
  pause_ = kFirstPause;
  profile_pause_ = kFirstProfilePause;
  last_reason_.clear();
  self_.send(AskProfile{accepted.connection});
}

void WorkerLink::handle(Command command, ActorContext&) {
  if (command.connection != connections_ || stream_ == nullptr) return;
  stream_->write(std::move(command.request));
}

void WorkerLink::handle(AskProfile ask, ActorContext&) {
  if (ask.connection != connections_ || stream_ == nullptr) return;
  profile_ = std::make_shared<Profile>(ask.connection, group_, self_);
  profile_->start(*stub_, profile_);
}

void WorkerLink::handle(ProfileFailed failed, ActorContext&) {
  if (failed.connection != connections_) return;
  self_.send_after(profile_pause_, AskProfile{failed.connection});
  profile_pause_ = std::min(profile_pause_ * 2, kLongestProfilePause);
}

void WorkerLink::handle(StreamEnded ended, ActorContext&) {
  if (ended.connection != connections_) return;
  stream_.reset();
  if (profile_ != nullptr) profile_->cancel();
  profile_.reset();
  std::string reason =
      ended.status.ok() ? "the worker closed the stream" : std::string(ended.status.message());
  group_.send(WorkerLost{ended.connection, reason});
  retry(reason);
}

void WorkerLink::retry(const std::string& reason) {
  group_.send(WorkerUnreachable{reason});
  if (reason != last_reason_) log::warn("no worker", {{"reason", reason}});
  last_reason_ = reason;
  self_.send_after(pause_, Connect{});
  pause_ = std::min(pause_ * 2, kLongestPause);
}

}  // namespace ragcache::controller
