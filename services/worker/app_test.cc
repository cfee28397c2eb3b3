#include "services/worker/app.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "ragcache/worker/v1/worker.grpc.pb.h"

namespace ragcache::worker {
namespace {

TEST(WorkerApp, MakesTheFolderOfWhatOutlivesTheProcess) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / absl::StrCat("worker_app_", getpid());
  const auto state = folder / "not" / "there";
  Config config;
  config.model = absl::StrCat(std::getenv("RAG_SOURCE_DIR"), "/tests/golden/models/llama_grouped");
  config.threads = 1;
  config.kv_memory_mib = 1;
  config.host_memory_mib = 1;
  config.host_arena = (state / "kv.arena").string();
  config.profile_after_s = 0;
  config.state_dir = state.string();
  config.listen = "127.0.0.1:0";
  auto app = App::start(config, std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(app.ok()) << app.status();
  EXPECT_TRUE(std::filesystem::exists(state / "kv.arena"));

  const auto stub = v1::WorkerService::NewStub(make_channel((*app)->address()));
  grpc::ClientContext context;
  const auto reader = stub->Profile(&context, {});
  v1::ProfileResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(std::filesystem::exists(state / "prefill_profile.json"));
  (*app)->stop();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ragcache::worker
