#include <grpcpp/grpcpp.h>

#include <future>

#include "common/rpc/status.h"
#include "ragcache/gateway/v1/gateway.grpc.pb.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using testing::ElementsAre;
namespace cpb = controller::v1;

// What operators ask of the cache, by gRPC. The bounds are those of the HTTP API, by one code.
class CacheCallsTest : public GatewayTest {
 protected:
  void start(Config config = {}) {
    GatewayTest::start(std::move(config));
    stub_ = v1::RagService::NewStub(
        grpc::CreateChannel(app_->grpc_address(), grpc::InsecureChannelCredentials()));
  }

  static v1::UpdateCachePathsRequest request_of(v1::CachePathAction action,
                                                const std::vector<const char*>& paths) {
    v1::UpdateCachePathsRequest request;
    request.set_action(action);
    for (const char* document : paths) request.add_paths()->add_documents(document);
    return request;
  }
  absl::Status update(const v1::UpdateCachePathsRequest& request,
                      v1::UpdateCachePathsResponse* response, const std::string& key = "") {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    return from_grpc_status(stub_->UpdateCachePaths(&context, request, response));
  }

  std::unique_ptr<v1::RagService::Stub> stub_;
};

TEST_F(CacheCallsTest, PinPathsOneAfterTheOther) {
  start();
  v1::UpdateCachePathsRequest request = request_of(v1::CACHE_PATH_ACTION_PIN, {"a", "gone", "b"});
  request.set_tenant("acme");
  v1::UpdateCachePathsResponse response;
  auto status = std::async(std::launch::async, [&] { return update(request, &response); });
  for (const grpc::Status& end :
       {grpc::Status::OK, grpc::Status(grpc::StatusCode::NOT_FOUND, "gone is not there"),
        grpc::Status::OK}) {
    const auto call = controller_.next_call();
    ASSERT_NE(call, nullptr);
    EXPECT_EQ(call->request().path_action(), cpb::PATH_ACTION_KEEP);
    EXPECT_EQ(call->request().tenant(), "acme");
    if (end.ok()) {
      for (const cpb::AnswerResponse& answered : answer()) call->send(answered);
    }
    call->finish(end);
  }
  ASSERT_TRUE(status.get().ok());
  ASSERT_EQ(response.paths_size(), 3);
  EXPECT_EQ(response.paths(0).tokens(), 100u);
  EXPECT_EQ(response.paths(1).code(), 5u);
  EXPECT_EQ(response.paths(1).error(), "gone is not there");
  EXPECT_EQ(response.done(), 2u);
  EXPECT_EQ(response.failed(), 1u);
  EXPECT_EQ(response.tokens(), 200u);
  EXPECT_EQ(response.cached_tokens(), 128u);
  EXPECT_THAT(controller_.last_request().retrieval().document_ids(), ElementsAre("b"));
}

TEST_F(CacheCallsTest, EndWithTheirClientAndAtAFailure) {
  start();
  v1::UpdateCachePathsResponse response;
  const v1::UpdateCachePathsRequest request =
      request_of(v1::CACHE_PATH_ACTION_WARM, {"a", "b", "c"});
  grpc::ClientContext context;
  auto cancelled = std::async(std::launch::async, [&] {
    return from_grpc_status(stub_->UpdateCachePaths(&context, request, &response));
  });
  auto call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  call->send(completed());
  call->finish();
  call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  context.TryCancel();
  EXPECT_TRUE(call->wait_cancelled());
  EXPECT_EQ(cancelled.get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(controller_.requests().size(), 2u);

  controller_.script({}, {grpc::StatusCode::UNAVAILABLE, "no worker"});
  EXPECT_EQ(update(request, &response).message(), "paths[0]: no worker");
  controller_.script({}, grpc::Status::OK);
  EXPECT_EQ(update(request, &response).code(), absl::StatusCode::kInternal);
}

TEST_F(CacheCallsTest, NameFieldAndBoundOfABadRequest) {
  start();
  const std::pair<v1::UpdateCachePathsRequest, const char*> cases[] = {
      {request_of(v1::CACHE_PATH_ACTION_UNSPECIFIED, {"a"}),
       "action: must be one of warm, pin, unpin"},
      {request_of(static_cast<v1::CachePathAction>(9), {"a"}),
       "action: must be one of warm, pin, unpin"},
      {request_of(v1::CACHE_PATH_ACTION_WARM, {}), "paths: must hold 1 to 256 paths, not 0"},
      {request_of(v1::CACHE_PATH_ACTION_WARM, {"a", ""}),
       "paths[1][0]: must be 1 to 256 bytes long, not 0"}};
  for (const auto& [request, message] : cases) {
    v1::UpdateCachePathsResponse response;
    const absl::Status status = update(request, &response);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
  EXPECT_TRUE(controller_.requests().empty());
}

TEST_F(CacheCallsTest, ShowTheTree) {
  start();
  controller_.set_tree(cache_tree());
  const auto tree_of = [this](uint32_t max_nodes, cpb::GetCacheTreeResponse* tree) {
    cpb::GetCacheTreeRequest request;
    request.set_max_nodes(max_nodes);
    grpc::ClientContext context;
    return from_grpc_status(stub_->GetCacheTree(&context, request, tree));
  };
  cpb::GetCacheTreeResponse tree;
  ASSERT_TRUE(tree_of(0, &tree).ok());
  EXPECT_EQ(tree.nodes_size(), 3);
  EXPECT_EQ(tree.nodes(1).document_id(), "doc-1");
  ASSERT_TRUE(tree_of(2, &tree).ok());
  EXPECT_EQ(tree.nodes_size(), 2);
  EXPECT_EQ(tree.total_nodes(), 4u);
  EXPECT_EQ(tree_of(100'001, &tree).message(), "max_nodes: must be 1 to 100000, not 100001");
}

TEST_F(CacheCallsTest, WantTheAdminKey) {
  start({.admin_key = "the-admin-key"});
  controller_.script(answer());
  v1::UpdateCachePathsResponse response;
  const v1::UpdateCachePathsRequest request = request_of(v1::CACHE_PATH_ACTION_WARM, {"a"});
  EXPECT_TRUE(absl::IsUnauthenticated(update(request, &response, "another-key")));
  EXPECT_TRUE(controller_.requests().empty());
  EXPECT_TRUE(update(request, &response, "the-admin-key").ok());
  cpb::GetCacheTreeResponse tree;
  grpc::ClientContext context;
  EXPECT_TRUE(absl::IsUnauthenticated(
      from_grpc_status(stub_->GetCacheTree(&context, cpb::GetCacheTreeRequest(), &tree))));
}

}  // namespace
}  // namespace ragcache::gateway
