#include "common/clock.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class StatusHandlersTest : public GatewayTest {};

TEST_F(StatusHandlersTest, IsAliveWhenNothingBehindItIs) {
  start();
  controller_.stop();
  EXPECT_EQ(send("GET", "/livez").status, 200u);
  const http::Response ready = send("GET", "/readyz");
  EXPECT_EQ(ready.status, 503u);
  EXPECT_EQ(json_of(ready)["ready"], false);
  EXPECT_THAT(json_of(ready)["reasons"][0].get<std::string>(), HasSubstr("controller: "));
}

TEST_F(StatusHandlersTest, IsReadyWhenTheControllerIs) {
  start();
  EXPECT_EQ(json_of(send("GET", "/readyz")), (json{{"ready", true}, {"reasons", json::array()}}));
  controller::v1::GetStatusResponse status;
  status.set_not_ready_reason("no worker");
  controller_.set_status(status);
  const http::Response response = send("GET", "/readyz");
  EXPECT_EQ(response.status, 503u);
  EXPECT_EQ(json_of(response)["reasons"], json::array({"no worker"}));
}

TEST_F(StatusHandlersTest, IsNotReadyWithoutAConnectionOfItsOwnToRetrieval) {
  start();
  retrieval_.stop();
  // The controller says it is ready all along; the broken connection shows after a first attempt.
  const TimePoint end = steady_now() + std::chrono::seconds(30);
  http::Response response = send("GET", "/readyz");
  while (response.status == 200 && steady_now() < end) response = send("GET", "/readyz");
  EXPECT_EQ(response.status, 503u);
  EXPECT_THAT(json_of(response)["reasons"][0].get<std::string>(), HasSubstr("retrieval: "));
}

TEST_F(StatusHandlersTest, ListsTheModel) {
  start();
  const json models = json_of(send("GET", "/v1/models"));
  ASSERT_EQ(models["data"].size(), 1u);
  EXPECT_EQ(models["data"][0]["id"], "fake-model");
  EXPECT_EQ(json_of(send("GET", "/v1/models/fake-model")), models["data"][0]);
  EXPECT_EQ(send("GET", "/v1/models/other").status, 404u);
}

TEST_F(StatusHandlersTest, AnswersUnknownPathsInTheShapeOfOpenAi) {
  start();
  const http::Response unknown = send("GET", "/v2/x");
  EXPECT_EQ(unknown.status, 404u);
  EXPECT_EQ(json_of(unknown)["error"]["type"], "invalid_request_error");
  const http::Response wrong = send("PUT", "/v1/chat/completions", "{}");
  EXPECT_EQ(wrong.status, 405u);
  EXPECT_EQ(json_of(wrong)["error"]["code"], "method_not_allowed");
  EXPECT_EQ(wrong.headers.get("allow"), "POST");
}

TEST_F(StatusHandlersTest, RefusesABadConfiguration) {
  const auto start_with = [this](Config config) {
    config.controller_address = controller_.address();
    config.retrieval_address = retrieval_.address();
    return App::start(std::move(config), std::make_shared<prometheus::Registry>()).status();
  };
  EXPECT_THAT(start_with({.listen = "nonsense"}).ToString(), HasSubstr("listen: "));
  EXPECT_THAT(start_with({.listen = "127.0.0.1:0", .default_top_k = 9, .max_top_k = 8}).ToString(),
              HasSubstr("default_top_k: 9 is above max_top_k, 8"));
  EXPECT_THAT(start_with({.listen = "127.0.0.1:0", .api_keys_file = "/nowhere"}).ToString(),
              HasSubstr("api_keys_file: cannot read /nowhere"));
  start();
  EXPECT_THAT(start_with({.listen = app_->address()}).ToString(), HasSubstr("port in use"));
  EXPECT_THAT(start_with({.listen = "127.0.0.1:0", .grpc_listen = app_->grpc_address()}).ToString(),
              HasSubstr("in use"));
}

}  // namespace
}  // namespace ragcache::gateway
