#include "services/gateway/grpc/readiness.h"

#include <chrono>

#include "common/rpc/deadline.h"
#include "services/gateway/stubs.h"

namespace ragcache::gateway {
namespace {

constexpr std::chrono::milliseconds kInterval{1000};
constexpr std::chrono::milliseconds kTimeout{2000};

}  // namespace

struct Readiness::Question {
  grpc::ClientContext context;
  controller::v1::GetStatusRequest request;
  controller::v1::GetStatusResponse response;
};

Readiness::Readiness(Services& services, RpcServer& server) : services_(services), server_(server) {
  server_.set_serving(false);
  std::lock_guard lock(mutex_);
  ask();
}

Readiness::~Readiness() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (alarm_ != nullptr) alarm_->Cancel();
  if (question_ != nullptr) question_->context.TryCancel();
  idle_.wait(lock, [this] { return alarm_ == nullptr && question_ == nullptr; });
}

void Readiness::ask() {
  question_ = std::make_unique<Question>();
  question_->context.set_deadline(deadline_in(kTimeout));
  services_.stubs->controller->async()->GetStatus(
      &question_->context, &question_->request, &question_->response,
      [this](const grpc::Status& status) { take_answer(status); });
}

void Readiness::take_answer(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  server_.set_serving(status.ok() && !services_.not_ready_reason(question_->response).has_value());
  question_.reset();
  if (stopping_) {
    idle_.notify_all();
    return;
  }
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(deadline_in(kInterval), [this](bool) {
    std::lock_guard lock(mutex_);
    alarm_.reset();
    if (stopping_) {
      idle_.notify_all();
    } else {
      ask();
    }
  });
}

}  // namespace ragcache::gateway
