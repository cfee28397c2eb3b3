#include "services/worker/service.h"

#include <atomic>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "services/worker/translate.h"

namespace ragcache::worker {

// One Execute call. Holds itself until gRPC is done with it.
class Service::Stream : public grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>,
                        public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(Service& service) : service_(service) {}

  void start() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void write(v1::ExecuteResponse response) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    response.set_event(++events_);
    responses_.push_back(std::move(response));
    if (responses_.size() == 1) StartWrite(&responses_.front());
  }

  void finish(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    Finish(to_grpc_status(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      leave();
      return finish(absl::OkStatus());
    }
    if (absl::Status taken = take(); !taken.ok()) {
      log::warn("the controller's stream is ended", {{"reason", std::string(taken.message())}});
      leave();
      return finish(taken);
    }
    request_.Clear();
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    responses_.pop_front();
    if (ok && !finished_ && !responses_.empty()) StartWrite(&responses_.front());
  }

  void OnCancel() override {
    leave();
    finish(absl::CancelledError("the controller left"));
  }

  void OnDone() override {
    leave();
    self_.reset();
  }

 private:
  absl::Status take() {
    const uint64_t command = request_.command();
    if (command != ++commands_) {
      return absl::InvalidArgumentError(
          absl::StrCat("command is ", command, ", must be ", commands_));
    }
    if (number_ == 0) {
      if (!request_.has_open()) {
        return absl::InvalidArgumentError("the first command of a stream must be open");
      }
      RAG_ASSIGN_OR_RETURN(
          number_, service_.open(shared_from_this(), request_.open().controller_term(), command));
      return absl::OkStatus();
    }
    RAG_ASSIGN_OR_RETURN(Command translated, to_command(std::move(request_), number_));
    service_.post_(std::move(translated));
    return absl::OkStatus();
  }

  // Ends what the stream had running; more than once does no harm.
  void leave() {
    if (number_ != 0) service_.closed(number_);
  }

  Service& service_;
  std::shared_ptr<Stream> self_;

  // Of the reading reaction alone, but for number_, which is 0 until the stream is open.
  v1::ExecuteRequest request_;
  uint64_t commands_ = 0;
  std::atomic<uint64_t> number_ = 0;

  std::mutex mutex_;  // guards what follows
  bool finished_ = false;
  uint64_t events_ = 0;
  // The front is being written. Bounded by what running requests have to say.
  std::deque<v1::ExecuteResponse> responses_;
};

// One Profile call. Holds itself until gRPC is done with it.
class ProfileCall : public grpc::ServerWriteReactor<v1::ProfileResponse>,
                    public std::enable_shared_from_this<ProfileCall> {
 public:
  void start(Profiler& profiler, bool again) {
    self_ = shared_from_this();
    const auto self = self_;
    profiler.profile(again, {.point =
                                 [self](size_t points, uint32_t cached_tokens, uint32_t new_tokens,
                                        double seconds) {
                                   v1::ProfileResponse response;
                                   response.set_points(static_cast<uint32_t>(points));
                                   response.mutable_point()->set_cached_tokens(cached_tokens);
                                   response.mutable_point()->set_new_tokens(new_tokens);
                                   response.mutable_point()->set_seconds(seconds);
                                   return self->write(std::move(response));
                                 },
                             .done =
                                 [self](const PrefillProfile& profile) {
                                   self->write(to_response(profile));
                                   self->end(absl::OkStatus());
                                 },
                             .failed = [self](const absl::Status& status) { self->end(status); }});
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    responses_.pop_front();
    if (!ok) responses_.clear();
    go_on();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    left_ = true;
  }
  void OnDone() override { self_.reset(); }

 private:
  bool write(v1::ProfileResponse response) {
    std::lock_guard lock(mutex_);
    if (left_) return false;
    responses_.push_back(std::move(response));
    if (responses_.size() == 1) StartWrite(&responses_.front());
    return true;
  }
  void end(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    status_ = status;
    if (responses_.empty()) Finish(to_grpc_status(*status_));
  }
  // REQUIRES: the lock.
  void go_on() {
    if (!responses_.empty()) return StartWrite(&responses_.front());
    if (status_.has_value()) Finish(to_grpc_status(*status_));
  }

  std::shared_ptr<ProfileCall> self_;
  std::mutex mutex_;                           // guards what follows
  std::deque<v1::ProfileResponse> responses_;  // the front is being written
  std::optional<absl::Status> status_;         // once all is said
  bool left_ = false;
};

Service::Service(v1::GetInfoResponse info, std::function<void(Command)> post, Profiler& profiler)
    : info_(std::move(info)), post_(std::move(post)), profiler_(profiler) {}

Service::~Service() = default;

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Service::Execute(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<Stream>(*this);
  stream->start();
  return stream.get();
}

grpc::ServerUnaryReactor* Service::GetInfo(grpc::CallbackServerContext* context,
                                           const v1::GetInfoRequest*,
                                           v1::GetInfoResponse* response) {
  *response = info_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1::ProfileResponse>* Service::Profile(grpc::CallbackServerContext*,
                                                                const v1::ProfileRequest* request) {
  auto call = std::make_shared<ProfileCall>();
  call->start(profiler_, request->again());
  return call.get();
}

absl::StatusOr<uint64_t> Service::open(std::shared_ptr<Stream> stream, uint64_t term,
                                       uint64_t command) {
  std::shared_ptr<Stream> older;
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    if (shutting_down_) return absl::UnavailableError("the worker is stopping");
    if (term < highest_term_) {
      return absl::FailedPreconditionError(
          absl::StrCat("controller_term is ", term, ", a stream of term ", highest_term_,
                       " was opened: another controller has taken over"));
    }
    highest_term_ = term;
    number = ++streams_;
    older = std::exchange(current_, std::move(stream));
    current_number_ = number;
    // Under the lock: streams reach the engine in the order of their numbers.
    post_({.stream = number, .number = command, .body = OpenStream{number}});
  }
  log::info("a controller opened the stream", {{"term", term}, {"stream", number}});
  if (older != nullptr) older->finish(absl::AbortedError("a newer stream was opened"));
  return number;
}

void Service::closed(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (current_ == nullptr || current_number_ != number) return;
  current_.reset();
  post_({.stream = number, .body = CloseStream{number}});
}

void Service::deliver(std::vector<Event> events) {
  std::shared_ptr<Stream> stream;
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    stream = current_;
    number = current_number_;
  }
  if (stream == nullptr) return;
  for (const Event& event : events) {
    if (event.stream != number) continue;
    v1::ExecuteResponse response = to_response(event);
    if (response.has_snapshot()) {
      response.mutable_snapshot()->set_worker_epoch(info_.worker_epoch());
    }
    stream->write(std::move(response));
  }
}

void Service::shut_down() {
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(mutex_);
    shutting_down_ = true;
    stream = current_;
  }
  if (stream != nullptr) stream->finish(absl::UnavailableError("the worker is stopping"));
}

}  // namespace ragcache::worker
