#include "services/gateway/grpc/paths_forward.h"

#include <utility>

#include "services/gateway/request/cache.h"

namespace ragcache::gateway {

namespace cpb = controller::v1;

class PathsForward::Answer final : public grpc::ClientReadReactor<cpb::AnswerResponse> {
 public:
  explicit Answer(PathsForward& owner) : owner_(owner) {}

  void start(const cpb::AnswerRequest& request) {
    const Inbound& inbound = owner_.inbound_;
    inbound.prepare(context_, inbound.services().config.answer_timeout_ms);
    inbound.services().stubs->controller->async()->Answer(&context_, &request, this);
    StartRead(&response_);
    StartCall();
  }
  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_completed()) ended_ = response_.completed();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const absl::StatusOr<cpb::Completed> ended =
        status.ok() ? std::move(ended_) : absl::StatusOr<cpb::Completed>(from_grpc_status(status));
    owner_.take(ended);  // which may be the end of this
  }

 private:
  PathsForward& owner_;
  grpc::ClientContext context_;
  cpb::AnswerResponse response_;
  absl::StatusOr<cpb::Completed> ended_ =
      absl::InternalError("the controller ended an answer without completing it");
};

PathsForward::PathsForward(Inbound inbound, absl::StatusOr<std::vector<cpb::AnswerRequest>> answers,
                           Bytes* response)
    : inbound_(std::move(inbound)), response_(response) {
  absl::Status status = inbound_.admission();
  if (status.ok()) status = answers.status();
  if (!status.ok()) {
    finish(status);
    return;
  }
  answers_ = *std::move(answers);
  ask_next();
}

void PathsForward::ask_next() {
  const size_t next = static_cast<size_t>(paths_.paths_size());
  if (next == answers_.size()) {
    finish(absl::OkStatus());
    return;
  }
  answers_[next].set_request_id(inbound_.request_id());
  auto answer = std::make_shared<Answer>(*this);
  bool cancelled;
  {
    std::lock_guard lock(mutex_);
    current_.swap(answer);  // the one before ends with this function
    cancelled = cancelled_;
  }
  if (cancelled) {
    finish(absl::CancelledError("the client went away"));
  } else {
    current_->start(answers_[next]);
  }
}

void PathsForward::take(const absl::StatusOr<cpb::Completed>& ended) {
  const absl::Status status = add_path(ended, paths_);
  if (status.ok()) {
    ask_next();
  } else {
    finish(status);
  }
}

void PathsForward::finish(const absl::Status& status) {
  *response_ = to_bytes(paths_);
  Finish(inbound_.ended(status));
}

void PathsForward::OnCancel() {
  std::shared_ptr<Answer> current;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    current = current_;
  }
  // Not under the lock: that may run the answer's end.
  if (current != nullptr) current->cancel();
}

}  // namespace ragcache::gateway
