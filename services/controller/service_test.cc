// The controller over real sockets, beside a worker that only keeps terms and a retrieval service
// that can be unready: what it says of itself, who rules the worker, and what calls wait for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/model/model_files.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/tokenizer/testing.h"
#include "ragcache/controller/v1/controller.grpc.pb.h"
#include "ragcache/worker/v1/worker.grpc.pb.h"
#include "services/controller/app.h"
#include "tests/fakes/fake_retrieval.h"

namespace ragcache::controller {
namespace {

using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(20);

class Retrieval : public fakes::FakeRetrieval {
 public:
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const retrieval::v1::GetInfoRequest*,
                                    retrieval::v1::GetInfoResponse* response) override {
    const Digest fingerprint = demo_tokenizer()->fingerprint();
    response->set_tokenizer_fingerprint(std::string(fingerprint.begin(), fingerprint.end()));
    response->set_ready(ready);
    if (!ready) response->set_not_ready_reason("shard 1 has no replica");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::atomic<bool> ready = true;
};

// Serves the stream of the highest term, as a worker does; computes nothing.
class TermKeeper : public worker::v1::WorkerService::Service {
 public:
  explicit TermKeeper(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}

  grpc::Status GetInfo(grpc::ServerContext*, const worker::v1::GetInfoRequest*,
                       worker::v1::GetInfoResponse* response) override {
    response->set_model_fingerprint(fingerprint_);
    response->set_block_tokens(16);
    response->set_total_blocks(100);
    response->set_context_tokens(2048);
    response->set_worker_epoch(7);
    return grpc::Status::OK;
  }

  grpc::Status Execute(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<worker::v1::ExecuteResponse,
                                                worker::v1::ExecuteRequest>* stream) override {
    worker::v1::ExecuteRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    {
      std::lock_guard lock(mutex_);
      opened_.push_back(steady_now());
      changed_.notify_all();
      if (request.open().controller_term() < term_) {
        return {grpc::StatusCode::FAILED_PRECONDITION, "another controller has taken over"};
      }
      term_ = request.open().controller_term();
      if (current_ != nullptr) current_->TryCancel();
      current_ = context;
    }
    worker::v1::ExecuteResponse response;
    response.set_event(1);
    response.mutable_snapshot()->set_worker_epoch(epoch);
    response.mutable_snapshot()->set_last_page(true);
    stream->Write(response);
    while (stream->Read(&request)) {
    }
    std::lock_guard lock(mutex_);
    if (current_ == context) current_ = nullptr;
    return grpc::Status::OK;
  }

  grpc::Status Profile(grpc::ServerContext*, const worker::v1::ProfileRequest*,
                       grpc::ServerWriter<worker::v1::ProfileResponse>*) override {
    std::lock_guard lock(mutex_);
    ++profiles_asked_;
    changed_.notify_all();
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too few blocks are free"};
  }

  // When the first `count` streams were opened.
  std::vector<TimePoint> wait_opened(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return opened_.size() >= count; }));
    return opened_;
  }
  void wait_profiles_asked(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return profiles_asked_ >= count; }));
  }

  std::atomic<uint64_t> epoch = 7;

 private:
  const std::string fingerprint_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  uint64_t term_ = 0;
  grpc::ServerContext* current_ = nullptr;
  std::vector<TimePoint> opened_;
  int profiles_asked_ = 0;
};

class ControllerService : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("controller_", getpid());
    std::filesystem::create_directories(folder_);
    model_ = absl::StrCat(std::getenv("RAG_DEPS_DIR"), "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    const Digest fingerprint = (*ModelFiles::open(model_))->fingerprint();
    worker_ = std::make_unique<TermKeeper>(std::string(fingerprint.begin(), fingerprint.end()));
  }
  void TearDown() override {
    if (worker_server_ != nullptr) worker_server_->stop(Duration::zero());
    std::filesystem::remove_all(folder_);
  }

  std::string socket(const std::string& name) const {
    return absl::StrCat("unix:", (folder_ / name).string());
  }
  void start_worker() {
    grpc::Service* services[] = {worker_.get()};
    auto server = RpcServer::start(socket("w"), services);
    ASSERT_TRUE(server.ok()) << server.status();
    worker_server_ = *std::move(server);
  }
  std::unique_ptr<App> start_controller(const std::string& name) {
    Config config;
    config.model = model_;
    config.listen = socket(name);
    config.worker_address = socket("w");
    config.retrieval_address = retrieval_.address();
    auto app = App::start(config, std::make_shared<prometheus::Registry>());
    EXPECT_TRUE(app.ok()) << app.status();
    return *std::move(app);
  }
  static std::unique_ptr<v1::ControllerService::Stub> stub(const App& app) {
    return v1::ControllerService::NewStub(make_channel(app.address()));
  }
  // The first status that `wanted` likes.
  static v1::GetStatusResponse status_when(
      v1::ControllerService::Stub& stub,
      const std::function<bool(const v1::GetStatusResponse&)>& wanted) {
    v1::GetStatusResponse response;
    const TimePoint end = steady_now() + kPatience;
    do {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(deadline_in(kPatience));
      EXPECT_TRUE(stub.GetStatus(&context, {}, &response).ok());
    } while (!wanted(response) && steady_now() < end);
    EXPECT_TRUE(wanted(response)) << response.ShortDebugString();
    return response;
  }
  static grpc::Status answer(v1::ControllerService::Stub& stub, bool retrieves, Duration timeout) {
    v1::AnswerRequest request;
    request.set_request_id("r");
    request.add_messages()->set_role(v1::ROLE_USER);
    request.mutable_messages(0)->set_content("Why?");
    request.mutable_sampling()->set_top_p(1);
    request.mutable_retrieval()->set_enabled(retrieves);
    request.mutable_retrieval()->set_top_k(1);
    grpc::ClientContext context;
    context.set_deadline(deadline_in(timeout));
    auto reader = stub.Answer(&context, request);
    v1::AnswerResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }

  std::filesystem::path folder_;
  std::string model_;
  Retrieval retrieval_;
  std::unique_ptr<TermKeeper> worker_;
  std::unique_ptr<RpcServer> worker_server_;
};

TEST_F(ControllerService, SaysWhatItWaitsFor) {
  const auto app = start_controller("c");
  const auto controller = stub(*app);
  EXPECT_THAT(status_when(*controller,
                          [](const auto& status) {
                            return status.not_ready_reason() != "worker: not connected yet";
                          })
                  .not_ready_reason(),
              HasSubstr("connect"));
  start_worker();
  EXPECT_EQ(status_when(*controller, [](const auto& s) { return s.ready(); }).context_tokens(),
            2048u);
  retrieval_.ready = false;
  EXPECT_EQ(status_when(*controller, [](const auto& s) { return !s.ready(); }).not_ready_reason(),
            "retrieval: shard 1 has no replica");
}

TEST_F(ControllerService, YieldsTheWorkerToALaterControllerAndSaysSo) {
  start_worker();
  const auto first = start_controller("c1");
  const auto first_stub = stub(*first);
  status_when(*first_stub, [](const auto& status) { return status.ready(); });
  auto second = start_controller("c2");
  status_when(*stub(*second), [](const auto& status) { return status.ready(); });
  status_when(*first_stub, [](const auto& status) {
    return !status.ready() &&
           status.not_ready_reason() == "worker: another controller has taken over";
  });
  // It asks again, less and less often: 50, 100, 200 ms later.
  const std::vector<TimePoint> opened = worker_->wait_opened(6);
  EXPECT_GE(opened[5] - opened[2], std::chrono::milliseconds(300));
  second->stop();
  EXPECT_FALSE(status_when(*first_stub, [](const auto& s) { return !s.ready(); }).ready());
}

TEST_F(ControllerService, TrustsNoWorkerThatIsAnotherThanItAsked) {
  worker_->epoch = 8;
  start_worker();
  const auto app = start_controller("c");
  worker_->wait_opened(3);
  EXPECT_FALSE(status_when(*stub(*app), [](const auto& s) { return !s.ready(); }).ready());
  worker_->epoch = 7;
  status_when(*stub(*app), [](const auto& status) { return status.ready(); });
}

TEST_F(ControllerService, AsksAgainForPrefillTimesThatItDidNotGet) {
  start_worker();
  const auto app = start_controller("c");
  worker_->wait_profiles_asked(2);
}

TEST_F(ControllerService, LeavesTheQueueAtTheCallsDeadline) {
  const auto app = start_controller("c");  // and no worker
  const auto controller = stub(*app);
  status_when(*controller, [](const auto&) { return true; });
  EXPECT_EQ(answer(*controller, false, std::chrono::milliseconds(300)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  status_when(*controller, [](const auto& status) { return status.waiting_requests() == 0; });
}

TEST_F(ControllerService, SearchesAgainWithinTheDeadline) {
  const auto app = start_controller("c");
  const auto controller = stub(*app);
  status_when(*controller, [](const auto&) { return true; });
  retrieval_.fail_searches({grpc::StatusCode::UNAVAILABLE, "restarting"});
  const TimePoint start = steady_now();
  const grpc::Status status = answer(*controller, true, std::chrono::seconds(2));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "restarting");
  // 50, 100, 200, 400 ms of pauses, and no more than the deadline.
  EXPECT_GE(steady_now() - start, std::chrono::milliseconds(750));
  retrieval_.fail_searches({grpc::StatusCode::INTERNAL, "broken"});
  EXPECT_EQ(answer(*controller, true, std::chrono::seconds(10)).error_message(), "broken");
}

}  // namespace
}  // namespace ragcache::controller
