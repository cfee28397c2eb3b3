#include "services/worker/service.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine_actor.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/model/tiny_model.h"

namespace ragcache::worker {
namespace {

using Call = grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteResponse>;

constexpr uint32_t kBlocks = 64;

// The service over a real socket, with a tiny model behind it.
class WorkerService : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat("worker_", getpid());
    std::filesystem::create_directories(folder_);
    v1::GetInfoResponse info;
    info.set_total_blocks(kBlocks);
    profiler_ = std::make_unique<Profiler>(
        (folder_ / "profile.json").string(), ProfileKey{model_.fingerprint(), "this"}, 512,
        [this](uint32_t cached_tokens, uint32_t new_tokens, Profiler::Answer answer) {
          engine_->time_prefill(cached_tokens, new_tokens, std::move(answer));
        });
    service_ = std::make_unique<Service>(
        info, [this](Command command) { engine_->post(std::move(command)); }, *profiler_);
    BlockPool pool = *BlockPool::create(model_.kv_layout(), kBlocks);
    auto arena = HostArena::open((folder_ / "arena").string(), model_.fingerprint(),
                                 model_.kv_layout(), kBlocks);
    ASSERT_TRUE(arena.ok()) << arena.status();
    arena_ = std::make_unique<HostArena>(*std::move(arena));
    transfers_ = std::make_unique<TransferActor>(Copier(model_.kv_layout(), pool.memory(), *arena_),
                                                 [this] { engine_->wake(); });
    engine_ = std::make_unique<EngineActor>(
        std::make_unique<Engine>(model_, std::move(pool), Engine::Limits{64}, metrics_, steady_now,
                                 Engine::Host{.arena = *arena_, .transfers = *transfers_}),
        [this](std::vector<Event> events) { service_->deliver(std::move(events)); });
    grpc::Service* const services[] = {service_.get()};
    auto server = RpcServer::start(absl::StrCat("unix:", (folder_ / "w.sock").string()), services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::WorkerService::NewStub(make_channel(server_->address()));
  }

  void TearDown() override {
    service_->shut_down();
    server_->stop();
    engine_->stop();
    transfers_->stop();
    std::filesystem::remove_all(folder_);
  }

  // A controller's end of a stream.
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<Call> call;
    uint64_t commands = 0;
    uint64_t events = 0;

    void send(v1::ExecuteRequest request) {
      request.set_command(++commands);
      call->Write(request);
    }
    v1::ExecuteResponse read() {
      v1::ExecuteResponse response;
      EXPECT_TRUE(call->Read(&response)) << "the stream ended";
      EXPECT_EQ(response.event(), ++events);
      return response;
    }
    // Reads up to the first event of a kind.
    v1::ExecuteResponse read_until(v1::ExecuteResponse::BodyCase kind) {
      for (int i = 0; i < 10000; ++i) {
        v1::ExecuteResponse response = read();
        if (response.body_case() == kind || HasFailure()) return response;
      }
      ADD_FAILURE() << "event " << kind << " did not come";
      return {};
    }
    absl::Status end() {
      v1::ExecuteResponse response;
      while (call->Read(&response)) {
      }
      return from_grpc(call->Finish());
    }
    static absl::Status from_grpc(const grpc::Status& status) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
  };

  std::unique_ptr<Stream> connect(uint64_t term) {
    auto stream = std::make_unique<Stream>();
    stream->call = stub_->Execute(&stream->context);
    v1::ExecuteRequest request;
    request.mutable_open()->set_controller_term(term);
    stream->send(request);
    return stream;
  }

  v1::ExecuteRequest generate(const std::string& id, uint32_t max_tokens) {
    v1::ExecuteRequest request;
    v1::Generate& generate = *request.mutable_generate();
    generate.set_request_id(id);
    std::vector<uint32_t> tokens(40);
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = (i * 7 + 3) % 61;
    const SegmentId segment =
        SegmentId::derive(SegmentId::root(model_.fingerprint(), "s"), digest_of_tokens(tokens));
    generate.add_segments()->set_id(std::string(segment.as_bytes()));
    generate.mutable_segments(0)->mutable_tokens()->Add(tokens.begin(), tokens.end());
    generate.mutable_segments(0)->set_expected_tier(types::v1::TIER_NONE);
    generate.add_tail_tokens(5);
    generate.set_max_tokens(max_tokens);
    generate.mutable_sampling()->set_top_p(1);
    generate.set_reserved_blocks(3 + (1 + max_tokens + 15) / 16);
    return request;
  }

  kernels::ThreadPool threads_{1};
  LlamaModel model_{tiny_weights(11), 64, threads_};
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  std::filesystem::path folder_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<EngineActor> engine_;
  std::unique_ptr<TransferActor> transfers_;
  std::unique_ptr<Profiler> profiler_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

TEST_F(WorkerService, AnswersOnTheStreamAndShowsItsSegmentsToTheNextOne) {
  auto stream = connect(1);
  const auto first = stream->read();
  ASSERT_TRUE(first.has_snapshot());
  EXPECT_TRUE(first.snapshot().last_page());
  EXPECT_EQ(first.snapshot().entries_size(), 0);
  stream->send(generate("r", 20));
  std::vector<uint32_t> answer;
  v1::Finished finished;
  for (bool done = false; !done && !HasFailure();) {
    const v1::ExecuteResponse event = stream->read();
    if (event.has_tokens()) {
      EXPECT_EQ(event.tokens().has_cached_device_tokens(), answer.empty());
      answer.insert(answer.end(), event.tokens().ids().begin(), event.tokens().ids().end());
    }
    if (event.has_finished()) {
      finished = event.finished();
      done = true;
    }
  }
  EXPECT_EQ(answer.size(), 20u);
  EXPECT_EQ(finished.prompt_tokens(), 41u);
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_LENGTH);
  const v1::Load load = stream->read_until(v1::ExecuteResponse::kLoad).load();
  EXPECT_EQ(load.last_command(), 2u);
  EXPECT_EQ(load.cached_blocks(), 3u);
  EXPECT_EQ(load.free_blocks(), kBlocks - 3);

  auto next = connect(2);
  const auto snapshot = next->read();
  ASSERT_EQ(snapshot.snapshot().entries_size(), 1);
  EXPECT_EQ(snapshot.snapshot().entries(0).token_count(), 40u);
  EXPECT_EQ(snapshot.snapshot().entries(0).parent_id(), "");
  EXPECT_EQ(stream->end().code(), absl::StatusCode::kAborted);
  v1::ExecuteRequest again = generate("again", 20);
  again.mutable_generate()->mutable_segments(0)->set_expected_tier(types::v1::TIER_DEVICE);
  next->send(again);
  EXPECT_EQ(next->read_until(v1::ExecuteResponse::kTokens).tokens().cached_device_tokens(), 40u);
}

TEST_F(WorkerService, MovesASegmentToTheHostAndBack) {
  auto stream = connect(1);
  stream->send(generate("r", 8));
  stream->read_until(v1::ExecuteResponse::kFinished);
  const std::string id = generate("x", 8).generate().segments(0).id();
  v1::ExecuteRequest replicate;
  replicate.mutable_replicate()->add_segment_ids(id);
  stream->send(replicate);
  v1::ExecuteRequest drop;
  drop.mutable_drop()->add_segment_ids(id);
  drop.mutable_drop()->set_tier(types::v1::TIER_DEVICE);
  stream->send(drop);
  EXPECT_EQ(stream->read_until(v1::ExecuteResponse::kSegmentSaved).segment_saved().segment_id(),
            id);
  v1::ExecuteRequest again = generate("again", 8);
  again.mutable_generate()->mutable_segments(0)->set_expected_tier(types::v1::TIER_HOST);
  stream->send(again);
  EXPECT_TRUE(stream->read_until(v1::ExecuteResponse::kSegmentReady).segment_ready().loaded());
  const v1::Finished finished = stream->read_until(v1::ExecuteResponse::kFinished).finished();
  EXPECT_EQ(finished.cached_host_tokens(), 40u);
  EXPECT_EQ(finished.cached_device_tokens(), 0u);
  EXPECT_GT(finished.load_us(), 0u);
  const v1::Load load = stream->read_until(v1::ExecuteResponse::kLoad).load();
  EXPECT_EQ(load.host_total_blocks(), kBlocks);
  EXPECT_EQ(load.host_cached_blocks(), 3u);
  auto next = connect(2);
  const auto snapshot = next->read();
  ASSERT_EQ(snapshot.snapshot().entries_size(), 1);
  EXPECT_TRUE(snapshot.snapshot().entries(0).on_device());
  EXPECT_TRUE(snapshot.snapshot().entries(0).on_host());
}

TEST_F(WorkerService, ProfilesBetweenRequestsAndAnswersAgainFromItsFile) {
  auto stream = connect(1);
  stream->send(generate("r", 20));
  const auto profile = [&](bool again, int* points) {
    grpc::ClientContext context;
    v1::ProfileRequest request;
    request.set_again(again);
    const auto reader = stub_->Profile(&context, request);
    v1::ProfileResponse response;
    *points = 0;
    while (reader->Read(&response)) *points += response.has_point() ? 1 : 0;
    EXPECT_TRUE(reader->Finish().ok());
    return response.profile();
  };
  int points = 0;
  const v1::PrefillProfile measured = profile(false, &points);
  EXPECT_EQ(points, 5);
  EXPECT_EQ(measured.new_tokens_size(), 5);
  EXPECT_EQ(measured.seconds_size(), 5);
  EXPECT_GT(measured.seconds(0), 0);
  EXPECT_EQ(profile(false, &points).seconds(0), measured.seconds(0));
  EXPECT_EQ(points, 0);
  stream->read_until(v1::ExecuteResponse::kFinished);
  profile(true, &points);
  EXPECT_EQ(points, 5);
}

TEST_F(WorkerService, RefusesALowerTermAndTakesTheSameOne) {
  auto stream = connect(5);
  EXPECT_TRUE(stream->read().has_snapshot());
  EXPECT_EQ(connect(4)->end().code(), absl::StatusCode::kFailedPrecondition);
  auto same = connect(5);
  EXPECT_TRUE(same->read().has_snapshot());
  EXPECT_EQ(stream->end().code(), absl::StatusCode::kAborted);
}

TEST_F(WorkerService, EndsWhatABrokenStreamHadRunning) {
  auto stream = connect(1);
  stream->send(generate("r", 400));
  stream->read_until(v1::ExecuteResponse::kTokens);
  stream->context.TryCancel();
  EXPECT_FALSE(stream->end().ok());
  auto next = connect(1);
  next->read_until(v1::ExecuteResponse::kSnapshot);
  const v1::Load load = next->read_until(v1::ExecuteResponse::kLoad).load();
  EXPECT_EQ(load.running_requests(), 0u);
  EXPECT_EQ(load.reserved_blocks(), 0u);
  EXPECT_EQ(load.cached_blocks(), 3u);
}

TEST_F(WorkerService, CancelsBetweenIterationsAndEndsOnce) {
  auto stream = connect(1);
  // Stands still for more blocks long before its last token, or it might end before the cancel.
  v1::ExecuteRequest request = generate("r", 400);
  request.mutable_generate()->set_reserved_blocks(5);
  stream->send(request);
  stream->read_until(v1::ExecuteResponse::kTokens);
  v1::ExecuteRequest cancel;
  cancel.mutable_cancel()->set_request_id("r");
  stream->send(cancel);
  stream->send(cancel);
  EXPECT_EQ(stream->read_until(v1::ExecuteResponse::kCancelled).cancelled().request_id(), "r");
  for (uint64_t command = 0; command < 4 && !HasFailure();) {
    const v1::ExecuteResponse event = stream->read();
    ASSERT_TRUE(event.has_load()) << event.ShortDebugString();
    command = event.load().last_command();
  }
}

TEST_F(WorkerService, EndsAStreamThatBreaksItsRules) {
  auto stream = std::make_unique<Stream>();
  stream->call = stub_->Execute(&stream->context);
  stream->send(generate("r", 4));
  EXPECT_EQ(stream->end().message(), "the first command of a stream must be open");

  stream = connect(1);
  stream->commands = 7;
  stream->send(generate("r", 4));
  EXPECT_EQ(stream->end().message(), "command is 8, must be 2");

  stream = connect(1);
  v1::ExecuteRequest request = generate("r", 4);
  request.mutable_generate()->mutable_segments(0)->set_id("short");
  stream->send(request);
  EXPECT_EQ(stream->end().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ragcache::worker
