
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/http/testing.h"
#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"
#include "tests/fakes/raw_client.h"

namespace ragcache::gateway {
namespace {

using http::gzip;
using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

// What holds for every route: keys, deadlines, ids, encodings, and requests that are none.
class RequestsTest : public GatewayTest {
 protected:
  ~RequestsTest() override {
    if (!keys_.empty()) std::filesystem::remove(keys_);
  }

  void start_with_keys(const std::string& text, Config config = {}) {
    keys_ = (std::filesystem::temp_directory_path() / "gateway-keys-XXXXXX").string();
    const int fd = ::mkstemp(keys_.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
    std::ofstream(keys_) << text;
    config.api_keys_file = keys_;
    start(std::move(config));
  }
  http::Response chat(http::Headers headers) {
    return send("POST", "/v1/chat/completions", chat_body().dump(), "application/json",
                std::move(headers));
  }
  std::string keys_;
};

TEST_F(RequestsTest, WantKeysAndPassTheTenantOn) {
  start_with_keys("acme:key-of-acme\nother:key-of-other\n");
  controller_.script(answer());
  for (const auto& [method, path] : {std::pair("POST", "/v1/chat/completions"),
                                     std::pair("POST", "/v1/completions"),
                                     std::pair("POST", "/v1/embeddings"),
                                     std::pair("POST", "/v1/search"),
                                     std::pair("GET", "/v1/models"),
                                     std::pair("GET", "/v1/models/x"),
                                     std::pair("POST", "/v1/documents"),
                                     std::pair("GET", "/v1/documents"),
                                     std::pair("PUT", "/v1/documents/x"),
                                     std::pair("GET", "/v1/documents/x"),
                                     std::pair("DELETE", "/v1/documents/x"),
                                     std::pair("POST", "/v1/documents/delete"),
                                     std::pair("GET", "/v1/corpora"),
                                     std::pair("PUT", "/v1/corpora/x"),
                                     std::pair("GET", "/v1/corpora/x"),
                                     std::pair("DELETE", "/v1/corpora/x"),
                                     std::pair("GET", "/admin/cache"),
                                     std::pair("GET", "/admin/cache/stats"),
                                     std::pair("GET", "/admin/cache/tree"),
                                     std::pair("POST", "/admin/cache/clear"),
                                     std::pair("POST", "/admin/cache/warm"),
                                     std::pair("POST", "/admin/cache/pin"),
                                     std::pair("POST", "/admin/cache/unpin")}) {
    for (http::Headers headers : {http::Headers{}, {{"Authorization", "Bearer wrong-key"}}}) {
      const http::Response refused = send(method, path, "{}", "application/json", headers);
      EXPECT_EQ(refused.status, 401u) << method << " " << path;
      EXPECT_EQ(refused.headers.get("www-authenticate"), "Bearer");
      const json error = json_of(refused)["error"];
      EXPECT_EQ(error["type"], "authentication_error");
      EXPECT_EQ(error["code"], "invalid_api_key");
    }
  }
  EXPECT_EQ(chat({{"Authorization", "Bearer key-of-other"}}).status, 200u);
  EXPECT_EQ(controller_.last_request().tenant(), "other");
  for (const char* open : {"/livez", "/readyz", "/metrics"}) {
    EXPECT_EQ(send("GET", open).status, 200u) << open;
  }
}

TEST_F(RequestsTest, KeepTheAdminKeyApartFromClientsKeys) {
  start_with_keys("acme:key-of-acme\n", {.admin_key = "the-admin-key"});
  EXPECT_EQ(send("GET", "/admin/cache", "", "", {{"Authorization", "Bearer key-of-acme"}}).status,
            401u);
  EXPECT_EQ(send("GET", "/admin/cache", "", "", {{"Authorization", "Bearer the-admin-key"}}).status,
            200u);
  EXPECT_EQ(send("GET", "/v1/models", "", "", {{"Authorization", "Bearer the-admin-key"}}).status,
            401u);
}

TEST_F(RequestsTest, EndWhenTheirTimeIsUp) {
  start({.answer_timeout_ms = 60'000});
  const http::Response late = chat({{"X-Request-Timeout-Ms", "50"}});
  EXPECT_EQ(late.status, 504u);
  EXPECT_EQ(json_of(late)["error"]["code"], "timeout");
  EXPECT_TRUE(controller_.next_call()->wait_cancelled());
  for (const char* bad : {"0", "-1", "60001", "1.5", "soon", ""}) {
    const http::Response refused = chat({{"X-Request-Timeout-Ms", bad}});
    EXPECT_EQ(refused.status, 400u) << bad;
    EXPECT_EQ(json_of(refused)["error"]["message"], "X-Request-Timeout-Ms: must be 1 to 60000");
  }
  controller_.script(answer());
  EXPECT_EQ(chat({}).status, 200u);
  EXPECT_GT(controller_.last_timeout_ms(), 50'000);
  EXPECT_EQ(chat({{"X-Request-Timeout-Ms", "20000"}}).status, 200u);
  EXPECT_LE(controller_.last_timeout_ms(), 21'000);  // gRPC rounds it up
}

TEST_F(RequestsTest, EndWhenTheirTimeIsUpWhileTheirBodyComes) {
  start();
  for (const char* encoding : {"identity", "gzip"}) {
    fakes::RawClient client(app_->port());
    client.send(
        str_cat("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Timeout-Ms: 50\r\n"
                "Content-Type: application/json\r\nContent-Encoding: ",
                encoding, "\r\nContent-Length: 100\r\n\r\n{"));
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 504 ")) << encoding;
    EXPECT_THAT(answer, HasSubstr("\"code\":\"timeout\""));
  }
}

TEST_F(RequestsTest, CarryTheirIdsToTheServices) {
  start();
  controller_.script(answer());
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  http::Response response = chat({{"X-Request-Id", "mine"}, {"traceparent", trace}});
  EXPECT_EQ(response.headers.get("x-request-id"), "mine");
  EXPECT_EQ(controller_.last_metadata("x-request-id"), "mine");
  EXPECT_EQ(controller_.last_metadata("traceparent"), trace);
  response = chat({{"X-Request-Id", "not \"mine\""}, {"traceparent", "00-zz-1-01"}});
  const std::string made(response.headers.get("x-request-id"));
  EXPECT_EQ(made.size(), 32u);
  EXPECT_EQ(controller_.last_metadata("x-request-id"), made);
  EXPECT_EQ(controller_.last_metadata("traceparent"), "");
  EXPECT_EQ(send("GET", "/nowhere", "", "", {{"x-request-id", "q"}}).headers.get("x-request-id"),
            "q");
}

TEST_F(RequestsTest, AreLoggedWithTheirIdsUnlessTheyAreProbes) {
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  testing::internal::CaptureStderr();
  start();
  controller_.script(answer());
  chat({{"X-Request-Id", "mine"}, {"traceparent", trace}});
  for (const char* probe : {"/livez", "/readyz", "/metrics"}) send("GET", probe);
  app_->stop();  // a request is logged when its answer is already sent
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(str_cat("\"level\":\"info\",\"message\":\"request\",",
                                     "\"request_id\":\"mine\",\"traceparent\":\"", trace, "\"")));
  EXPECT_THAT(log, testing::Not(HasSubstr("\"route\":\"/livez\"")));
  EXPECT_THAT(log, testing::Not(HasSubstr("\"route\":\"/readyz\"")));
  EXPECT_THAT(log, testing::Not(HasSubstr("\"route\":\"/metrics\"")));
}

TEST_F(RequestsTest, MayBeCompressed) {
  start({.limits = {.max_body_bytes = 1 << 20}});
  controller_.script(answer());
  const http::Headers encoded = {{"Content-Encoding", "gzip"}};
  EXPECT_EQ(
      send("POST", "/v1/chat/completions", gzip(chat_body().dump()), "application/json", encoded)
          .status,
      200u);
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += str_cat("{\"id\":\"d", i, "\",\"text\":\"some text\"}\n");
  EXPECT_EQ(json_of(send("POST", "/v1/documents", gzip(lines), "application/x-ndjson",
                         encoded))["accepted"],
            2000);
  EXPECT_EQ(send("POST", "/v1/search", "not gzip", "application/json", encoded).status, 400u);
  std::string cut = gzip(lines);
  cut.resize(cut.size() / 2);
  EXPECT_THAT(send("POST", "/v1/documents", cut, "application/x-ndjson", encoded).body,
              HasSubstr("the gzip body ends too soon"));
  // What it becomes counts, not what it weighs.
  const std::string bomb = gzip(std::string(32 << 20, ' '));
  EXPECT_EQ(send("POST", "/v1/search", bomb, "application/json", encoded).status, 413u);
}

TEST_F(RequestsTest, AreRefusedWhenTheyAreTooLarge) {
  start();
  const std::string ten_megabytes(10 << 20, 'x');
  json request = chat_body();
  request["messages"][0]["content"] = ten_megabytes;
  http::Response refused = send("POST", "/v1/chat/completions", request.dump());
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(refused.body,
              HasSubstr("messages[0].content: must be 0 to 4194304 bytes long, not 10485760"));
  refused = send("POST", "/v1/completions",
                 json{{"model", "ragcache"}, {"prompt", ten_megabytes}}.dump());
  EXPECT_THAT(refused.body, HasSubstr("prompt: must be 1 to 4194304 bytes long, not 10485760"));
  request["messages"][0]["content"] = ten_megabytes + ten_megabytes;
  refused = send("POST", "/v1/chat/completions", request.dump());
  EXPECT_EQ(refused.status, 413u);
  EXPECT_EQ(json_of(refused)["error"]["code"], "request_too_large");
  // Huge arrays, of what an array may and may not hold.
  std::string ids = "1";
  for (int i = 0; i < 1 << 20; ++i) ids += ",1";
  EXPECT_THAT(
      send("POST", "/v1/completions", str_cat("{\"model\":\"ragcache\",\"prompt\":[", ids, "]}"))
          .body,
      HasSubstr("prompt: must hold 1 to 1048576 token ids, not 1048577"));
  for (const char* field : {"stop", "stop_token_ids", "messages", "tools", "rag"}) {
    EXPECT_EQ(send("POST", "/v1/chat/completions",
                   str_cat("{\"model\":\"ragcache\",\"messages\":[{\"role\":\"user\",\"content\":"
                           "\"x\"}],\"",
                           field, "\":[", ids, "]}"))
                  .status,
              400u)
        << field;
  }
}

TEST_F(RequestsTest, AreAnsweredOneAfterTheOther) {
  start();
  controller_.script(answer());
  fakes::RawClient client(app_->port());
  const std::string body = chat_body().dump();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  const std::string chat_request = str_cat(head, "Content-Length: ", body.size(), "\r\n\r\n", body);
  client.send(chat_request + "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + chat_request);
  EXPECT_THAT(client.read_answer(), HasSubstr("\"chat.completion\""));
  EXPECT_THAT(client.read_answer(), HasSubstr("\"ok\""));
  EXPECT_THAT(client.read_answer(), HasSubstr("\"chat.completion\""));
  client.send(str_cat(head, "Content-Length: ", body.size(), "\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.read_answer(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(body);
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200 OK"));
  fakes::RawClient old(app_->port());
  old.send("GET /livez HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.read_all(), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(RequestsTest, AreRefusedInTheShapeOfOpenAiWhenTheyAreNoHttp) {
  start({.limits = {.max_header_bytes = 2048, .header_timeout_ms = 50, .body_timeout_ms = 50}});
  const std::string post =
      "POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {"nonsense\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(4096, 'x') + "\r\n\r\n", "431"},
      {post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"que", "408"},
      {post + "Content-Length: 100\r\n\r\n{\"query\":", "408"},
      {"GET /livez HTT", "408"},
      {"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "415"},
      {"PATCH /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"},
  };
  for (const auto& [request, status] : cases) {
    fakes::RawClient client(app_->port());
    client.send(request);
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith(str_cat("HTTP/1.1 ", status, " "))) << request;
    const auto body = json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
    EXPECT_TRUE(body.is_object() && body["error"].contains("message")) << answer;
  }
  EXPECT_EQ(send("GET", "/livez").status, 200u);
}

TEST_F(RequestsTest, OfAClientThatNeverReadsAreGivenUp) {
  start({.limits = {.write_timeout_ms = 100}});
  std::vector<controller::v1::AnswerResponse> flood(400, delta(std::string(64 << 10, 'x')));
  flood.push_back(completed());
  controller_.script(std::move(flood));
  json request = chat_body();
  request["stream"] = true;
  const std::string body = request.dump();
  fakes::RawClient client(app_->port());
  client.send(
      str_cat("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
              "application/json\r\nContent-Length: ",
              body.size(), "\r\n\r\n", body));
  client.read_until("data: ");
  app_->stop();  // waits for open requests
  EXPECT_THAT(metrics::to_text(*registry_),
              HasSubstr("{code=\"499\",route=\"/v1/chat/completions\"} 1"));
}

}  // namespace
}  // namespace ragcache::gateway
