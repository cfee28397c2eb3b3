#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/server.h"
#include "ragcache/controller/v1/controller.grpc.pb.h"

namespace ragcache::fakes {

// One Answer call that a test answers step by step. Any thread.
class FakeAnswer : public grpc::ServerWriteReactor<controller::v1::AnswerResponse> {
 public:
  explicit FakeAnswer(controller::v1::AnswerRequest request) : request_(std::move(request)) {}

  const controller::v1::AnswerRequest& request() const { return request_; }

  void send(controller::v1::AnswerResponse response);
  void finish(grpc::Status status = grpc::Status::OK);
  // Whether the caller cancelled; waits ten seconds for it.
  bool wait_cancelled();

  void keep(std::shared_ptr<FakeAnswer> self) { self_ = std::move(self); }
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  void next();  // REQUIRES: mutex_ held, no write in flight

  const controller::v1::AnswerRequest request_;
  std::shared_ptr<FakeAnswer> self_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable cancelled_;
  std::deque<controller::v1::AnswerResponse> queue_;  // the front is being written
  std::optional<grpc::Status> end_;
  bool finished_ = false;
  bool is_cancelled_ = false;
};

// A ControllerService on a unix socket of its own: answers by script, or hands each call to the
// test.
class FakeController : public controller::v1::ControllerService::CallbackService {
 public:
  FakeController();
  ~FakeController() override;

  const std::string& address() const { return server_->address(); }

  // From now on every Answer call gets these responses and this end.
  void script(std::vector<controller::v1::AnswerResponse> responses,
              grpc::Status end = grpc::Status::OK);
  // The next call that no script answered; null after ten seconds.
  std::shared_ptr<FakeAnswer> next_call();
  // The request that came last. REQUIRES: there was one.
  controller::v1::AnswerRequest last_request();
  // Every request that came, in order.
  std::vector<controller::v1::AnswerRequest> requests();
  // Of the Answer call that came last: a metadata value, and the milliseconds it was given.
  std::string last_metadata(const std::string& name);
  int64_t last_timeout_ms();

  void set_status(controller::v1::GetStatusResponse status);
  void fail_status(grpc::Status failure);
  // What GetCacheTree tells the first nodes of.
  void set_tree(controller::v1::GetCacheTreeResponse tree);
  void stop() { server_->stop(Duration(0)); }

  grpc::ServerWriteReactor<controller::v1::AnswerResponse>* Answer(
      grpc::CallbackServerContext* context, const controller::v1::AnswerRequest* request) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const controller::v1::GetStatusRequest* request,
                                      controller::v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ClearCache(grpc::CallbackServerContext* context,
                                       const controller::v1::ClearCacheRequest* request,
                                       controller::v1::ClearCacheResponse* response) override;
  grpc::ServerUnaryReactor* GetCacheTree(grpc::CallbackServerContext* context,
                                         const controller::v1::GetCacheTreeRequest* request,
                                         controller::v1::GetCacheTreeResponse* response) override;

 private:
  std::string folder_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable called_;
  bool scripted_ = false;
  std::vector<controller::v1::AnswerResponse> script_;
  grpc::Status script_end_;
  std::deque<std::shared_ptr<FakeAnswer>> calls_;
  std::vector<controller::v1::AnswerRequest> requests_;
  std::map<std::string, std::string> last_metadata_;
  int64_t last_timeout_ms_ = 0;
  controller::v1::GetStatusResponse status_;
  grpc::Status status_failure_;
  controller::v1::GetCacheTreeResponse tree_;

  std::unique_ptr<RpcServer> server_;  // ends first
};

}  // namespace ragcache::fakes
