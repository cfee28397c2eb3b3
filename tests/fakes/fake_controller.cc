#include "tests/fakes/fake_controller.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/check.h"

namespace ragcache::fakes {
namespace {

namespace pb = controller::v1;

constexpr std::chrono::seconds kPatience{10};

}  // namespace

void FakeAnswer::send(pb::AnswerResponse response) {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  queue_.push_back(std::move(response));
  if (queue_.size() == 1) next();
}

void FakeAnswer::finish(grpc::Status status) {
  std::lock_guard lock(mutex_);
  end_ = std::move(status);
  if (queue_.empty()) next();
}

bool FakeAnswer::wait_cancelled() {
  std::unique_lock lock(mutex_);
  return cancelled_.wait_for(lock, kPatience, [this] { return is_cancelled_; });
}

void FakeAnswer::OnWriteDone(bool) {
  std::lock_guard lock(mutex_);
  queue_.pop_front();
  next();
}

void FakeAnswer::OnCancel() {
  std::lock_guard lock(mutex_);
  is_cancelled_ = true;
  cancelled_.notify_all();
  // As the real one does: a cancelled request ends.
  if (!end_) end_ = grpc::Status::CANCELLED;
  if (queue_.empty()) next();
}

void FakeAnswer::next() {
  if (!queue_.empty()) {
    StartWrite(&queue_.front());
  } else if (end_ && !std::exchange(finished_, true)) {
    Finish(*end_);
  }
}

FakeController::FakeController() {
  folder_ = (std::filesystem::temp_directory_path() / "ragcache-fake-XXXXXX").string();
  RAG_CHECK(mkdtemp(folder_.data()) != nullptr);
  status_.set_ready(true);
  status_.set_model_name("fake-model");
  status_.set_context_tokens(4096);
  grpc::Service* services[] = {this};
  auto server = RpcServer::start("unix:" + folder_ + "/controller.sock", services);
  RAG_CHECK(server.ok());
  server_ = std::move(*server);
}

FakeController::~FakeController() {
  server_->stop(Duration(0));
  std::filesystem::remove_all(folder_);
}

void FakeController::script(std::vector<pb::AnswerResponse> responses, grpc::Status end) {
  std::lock_guard lock(mutex_);
  scripted_ = true;
  script_ = std::move(responses);
  script_end_ = std::move(end);
}

std::shared_ptr<FakeAnswer> FakeController::next_call() {
  std::unique_lock lock(mutex_);
  if (!called_.wait_for(lock, kPatience, [this] { return !calls_.empty(); })) return nullptr;
  auto call = std::move(calls_.front());
  calls_.pop_front();
  return call;
}

pb::AnswerRequest FakeController::last_request() {
  std::lock_guard lock(mutex_);
  RAG_CHECK(!requests_.empty());
  return requests_.back();
}

std::vector<pb::AnswerRequest> FakeController::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::string FakeController::last_metadata(const std::string& name) {
  std::lock_guard lock(mutex_);
  return last_metadata_[name];
}

int64_t FakeController::last_timeout_ms() {
  std::lock_guard lock(mutex_);
  return last_timeout_ms_;
}

void FakeController::set_status(pb::GetStatusResponse status) {
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void FakeController::fail_status(grpc::Status failure) {
  std::lock_guard lock(mutex_);
  status_failure_ = std::move(failure);
}

void FakeController::set_tree(pb::GetCacheTreeResponse tree) {
  std::lock_guard lock(mutex_);
  tree_ = std::move(tree);
}

grpc::ServerWriteReactor<pb::AnswerResponse>* FakeController::Answer(
    grpc::CallbackServerContext* context, const pb::AnswerRequest* request) {
  auto call = std::make_shared<FakeAnswer>(*request);
  call->keep(call);
  std::lock_guard lock(mutex_);
  requests_.push_back(*request);
  last_metadata_.clear();
  for (const auto& [name, value] : context->client_metadata()) {
    last_metadata_[{name.data(), name.size()}] = {value.data(), value.size()};
  }
  last_timeout_ms_ = std::chrono::duration_cast<std::chrono::milliseconds>(
                         context->deadline() - std::chrono::system_clock::now())
                         .count();
  if (scripted_) {
    for (const pb::AnswerResponse& response : script_) call->send(response);
    call->finish(script_end_);
  } else {
    calls_.push_back(call);
    called_.notify_all();
  }
  return call.get();
}

grpc::ServerUnaryReactor* FakeController::GetStatus(grpc::CallbackServerContext* context,
                                                    const pb::GetStatusRequest*,
                                                    pb::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  *response = status_;
  reactor->Finish(status_failure_);
  return reactor;
}

grpc::ServerUnaryReactor* FakeController::ClearCache(grpc::CallbackServerContext* context,
                                                     const pb::ClearCacheRequest*,
                                                     pb::ClearCacheResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  response->set_cleared_nodes(3);
  response->set_cleared_tokens(700);
  response->set_kept_nodes(1);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeController::GetCacheTree(grpc::CallbackServerContext* context,
                                                       const pb::GetCacheTreeRequest* request,
                                                       pb::GetCacheTreeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  *response = tree_;
  const int told = std::min(tree_.nodes_size(), static_cast<int>(request->max_nodes()));
  response->mutable_nodes()->DeleteSubrange(told, tree_.nodes_size() - told);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ragcache::fakes
