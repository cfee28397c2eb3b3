// The group alone, in virtual time, told step by step what happens to it. What it makes of all that
// together is shown by tests/sim.
#include "services/controller/group_actor.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/actor/sim_runtime.h"

namespace ragcache::controller {
namespace {

class Group : public ::testing::Test {
 protected:
  Group() {
    Config config;
    config.max_waiting = 2;
    group_ = runtime_.spawn<GroupActor>(config, uint64_t{1}, *make_policy("lru"), prefill_cost_,
                                        metrics_);
  }

  template <typename M>
  void tell(M message) {
    group_.send(std::move(message));
    runtime_.run(1000);
  }
  void tell_event(worker::v1::ExecuteResponse event) {
    tell(WorkerEvent{connection_, std::move(event)});
  }
  void connect() {
    worker::v1::GetInfoResponse info;
    info.set_block_tokens(16);
    info.set_total_blocks(10);
    info.set_context_tokens(100);
    tell(WorkerConnected{
        ++connection_, std::move(info),
        Address<worker::v1::ExecuteRequest>::of_functions([](worker::v1::ExecuteRequest) {})});
    worker::v1::ExecuteResponse event;
    event.mutable_snapshot()->set_last_page(true);
    tell_event(std::move(event));
  }
  void submit(const std::string& id, uint32_t max_tokens = 4) {
    auto plan = std::make_shared<PromptPlan>();
    plan->tail = {1, 2, 3};
    Submit submit{};
    submit.request_id = id;
    submit.plan = std::move(plan);
    submit.max_tokens = max_tokens;
    submit.reply = RequestEvents::of_functions(
        [](TokensArrived) {}, [this, id](GroupEnded ended) { ends_[id] = ended.status.code(); });
    tell(std::move(submit));
  }

  SimRuntime runtime_{1};
  prometheus::Registry registry_;
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(registry_);
  const std::shared_ptr<PrefillCost> prefill_cost_ =
      std::make_shared<PrefillCost>(PrefillCost::unmeasured());
  ActorRef<GroupActor> group_;
  uint64_t connection_ = 0;
  std::map<std::string, absl::StatusCode> ends_;
};

TEST_F(Group, CountsEachRequestThatEndsByItsOutcome) {
  connect();
  submit("finished");
  worker::v1::ExecuteResponse event;
  event.mutable_finished()->set_request_id("finished");
  tell_event(event);
  submit("withdrawn");
  tell(Withdraw{"withdrawn"});
  event.mutable_cancelled()->set_request_id("withdrawn");
  tell_event(event);
  submit("too long", 1000);
  submit("failed");
  event.mutable_failed()->set_request_id("failed");
  event.mutable_failed()->set_code(worker::v1::FAILURE_CODE_INTERNAL);
  tell_event(event);
  submit("unlucky");
  for (int losses = 0; losses < 3; ++losses) {
    if (losses > 0) connect();
    tell(WorkerLost{connection_, "killed"});
  }
  submit("waits");
  submit("waits too");
  submit("one too many");
  group_.send_after(std::chrono::minutes(1), WorkerUnreachable{"connection refused"});
  runtime_.run(1000);
  submit("too late");

  using Code = absl::StatusCode;
  EXPECT_EQ(ends_, (std::map<std::string, Code>{{"finished", Code::kOk},
                                                {"withdrawn", Code::kCancelled},
                                                {"too long", Code::kInvalidArgument},
                                                {"failed", Code::kInternal},
                                                {"unlucky", Code::kUnavailable},
                                                {"waits", Code::kUnavailable},
                                                {"waits too", Code::kUnavailable},
                                                {"one too many", Code::kResourceExhausted},
                                                {"too late", Code::kUnavailable}}));
  EXPECT_EQ(metrics_->finished.Value(), 1);
  EXPECT_EQ(metrics_->cancelled.Value(), 1);
  EXPECT_EQ(metrics_->failed.Value(), 7);
}

TEST_F(Group, KeepsItsPrefillTimesWhereANewTableMakesNoSenseOrIsAnotherWorkers) {
  const auto table = [](const std::vector<uint32_t>& new_tokens,
                        const std::vector<double>& seconds) {
    worker::v1::PrefillProfile table;
    table.add_cached_tokens(0);
    table.mutable_new_tokens()->Add(new_tokens.begin(), new_tokens.end());
    table.mutable_seconds()->Add(seconds.begin(), seconds.end());
    return table;
  };
  connect();
  connect();
  tell(WorkerProfiled{connection_, table({16, 32}, {1, 2})});
  EXPECT_TRUE(prefill_cost_->measured());
  EXPECT_EQ(prefill_cost_->seconds(0, 32), 2);
  tell(WorkerProfiled{connection_, table({16, 32}, {7})});
  tell(WorkerProfiled{connection_, table({16, 32}, {7, -7})});
  tell(WorkerProfiled{connection_, table({32, 16}, {7, 7})});
  tell(WorkerProfiled{connection_, table({}, {})});
  tell(WorkerProfiled{connection_ - 1, table({16, 32}, {7, 7})});
  EXPECT_EQ(prefill_cost_->seconds(0, 32), 2);
  tell(WorkerProfiled{connection_, table({16, 32}, {3, 4})});
  EXPECT_EQ(prefill_cost_->seconds(0, 32), 4);
}

}  // namespace
}  // namespace ragcache::controller
