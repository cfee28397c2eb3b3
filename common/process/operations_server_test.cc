#include "common/process/operations_server.h"

#include <gtest/gtest.h>

#include <prometheus/registry.h>

#include <future>
#include <thread>
#include <vector>

#include "common/http/client.h"
#include "common/metrics/metrics.h"

namespace ragcache {
namespace {

struct Fixture : testing::Test {
  void SetUp() override {
    auto started = OperationsServer::start("127.0.0.1:0", registry);
    ASSERT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }

  http::Response get(const std::string& path) {
    auto client = http::Client::create("http://" + server->address());
    http::ClientRequest request;
    request.target = path;
    return *client->fetch(request);
  }

  metrics::Registry registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<OperationsServer> server;
};

using OperationsServerTest = Fixture;

TEST_F(OperationsServerTest, IsAliveButNotReadyBeforeItsServiceIs) {
  EXPECT_EQ(get("/livez").status, 200u);
  const http::Response before = get("/readyz");
  EXPECT_EQ(before.status, 503u);
  EXPECT_EQ(before.body, "{\"ready\":false,\"reasons\":[\"starting\"]}\n");

  absl::Status state = absl::OkStatus();
  server->set_service([&](const RunningService::Ready& done) { done(state); });
  EXPECT_EQ(get("/readyz").status, 200u);
  state = absl::UnavailableError("no worker");
  const http::Response broken = get("/readyz");
  EXPECT_EQ(broken.status, 503u);
  EXPECT_EQ(broken.body, "{\"ready\":false,\"reasons\":[\"no worker\"]}\n");

  server->set_stopping();
  EXPECT_EQ(get("/readyz").body, "{\"ready\":false,\"reasons\":[\"stopping\"]}\n");
  EXPECT_EQ(get("/livez").status, 200u);
}

TEST_F(OperationsServerTest, ServesTheRegistry) {
  metrics::counter(*registry, "ragcache_things_total", "Things.").Increment(3);
  const http::Response response = get("/metrics");
  EXPECT_EQ(response.status, 200u);
  EXPECT_NE(response.body.find("ragcache_things_total 3"), std::string::npos) << response.body;
}

TEST_F(OperationsServerTest, EndsWhileAServiceOwesItAnAnswer) {
  // The service keeps the question and never answers.
  std::vector<RunningService::Ready> kept;
  std::promise<void> asked;
  server->set_service([&](RunningService::Ready done) {
    kept.push_back(std::move(done));
    asked.set_value();
  });
  std::thread client([this] {
    auto client = http::Client::create("http://" + server->address());
    http::ClientRequest request;
    request.target = "/readyz";
    (void)client->fetch(request);  // an error or a 503, as the stop has it
  });
  asked.get_future().wait();
  kept.clear();
  server.reset();
  client.join();
}

TEST(OperationsServer, NamesAnAddressThatItCannotHave) {
  auto registry = std::make_shared<prometheus::Registry>();
  auto first = OperationsServer::start("127.0.0.1:0", registry);
  ASSERT_TRUE(first.ok());
  auto second = OperationsServer::start((*first)->address(), registry);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find((*first)->address()), std::string::npos);
  EXPECT_EQ(OperationsServer::start("nonsense", registry).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ragcache
