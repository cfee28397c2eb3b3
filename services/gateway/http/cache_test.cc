#include <future>

#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class CacheTest : public GatewayTest {
 protected:
  // The next answer that the controller is asked for ends so. Its request.
  controller::v1::AnswerRequest end_next(grpc::Status status, uint32_t tokens = 0,
                                         uint32_t cached_tokens = 0) {
    const auto call = controller_.next_call();
    if (call == nullptr) {
      ADD_FAILURE() << "the controller is not asked";
      return {};
    }
    if (status.ok()) {
      call->send(retrieved());
      call->send(delta("x"));
      controller::v1::AnswerResponse end = completed();
      end.mutable_completed()->set_prompt_tokens(tokens);
      end.mutable_completed()->set_cached_tokens(cached_tokens);
      call->send(end);
    }
    call->finish(std::move(status));
    return call->request();
  }
  std::future<http::Response> post(const std::string& action, const std::string& body) {
    return std::async(std::launch::async,
                      [=, this] { return send("POST", "/admin/cache/" + action, body); });
  }
};

TEST_F(CacheTest, ShowsBothTiersAndClears) {
  start();
  controller::v1::GetStatusResponse status;
  controller::v1::CacheStats& stats = *status.mutable_cache();
  stats.set_total_blocks(10);
  stats.set_free_blocks(4);
  stats.set_reserved_blocks(1);
  stats.set_cached_blocks(5);
  stats.set_policy("lru");
  stats.set_host_total_blocks(20);
  stats.set_host_cached_blocks(7);
  stats.set_device_tokens(80);
  stats.set_host_tokens(100);
  stats.set_hit_host_prefix_tokens(11);
  stats.set_demoted_nodes(12);
  stats.set_evicted_host_nodes(13);
  stats.set_released_copies(14);
  stats.set_lost_copies(15);
  stats.set_saved_bytes(uint64_t{1} << 40);
  stats.set_loaded_bytes(17);
  stats.set_kept_nodes(18);
  controller_.set_status(status);
  const json cache = json_of(send("GET", "/admin/cache"));
  EXPECT_EQ(cache["blocks"], (json{{"total", 10}, {"free", 4}, {"reserved", 1}, {"cached", 5}}));
  EXPECT_EQ(cache["host_blocks"], (json{{"total", 20}, {"free", 13}, {"cached", 7}}));
  EXPECT_EQ(cache["policy"], "lru");
  const std::pair<const char*, uint64_t> figures[] = {
      {"device_tokens", 80}, {"host_tokens", 100},    {"hit_host_prefix_tokens", 11},
      {"demoted_nodes", 12}, {"released_copies", 14}, {"evicted_host_nodes", 13},
      {"lost_copies", 15},   {"loaded_bytes", 17},    {"saved_bytes", uint64_t{1} << 40},
      {"kept_nodes", 18}};
  for (const auto& [name, value] : figures) EXPECT_EQ(cache[name], value) << name;
  EXPECT_EQ(json_of(send("GET", "/admin/cache/stats")), cache);
  EXPECT_EQ(json_of(send("POST", "/admin/cache/clear")),
            (json{{"cleared_nodes", 3}, {"cleared_tokens", 700}, {"kept_nodes", 1}}));
}

TEST_F(CacheTest, IsKeptBehindTheKey) {
  start({.admin_key = "secret"});
  EXPECT_EQ(send("GET", "/livez").status, 200u);
  for (const char* given :
       {"", "Bearer ", "Bearer secre", "Bearer secret2", "secret", "Basic secret"}) {
    const http::Response refused = send("GET", "/admin/cache", "", "", {{"Authorization", given}});
    EXPECT_EQ(refused.status, 401u) << given;
    EXPECT_EQ(json_of(refused)["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(send("POST", "/admin/cache/clear").status, 401u);
  EXPECT_EQ(send("GET", "/admin/cache/tree").status, 401u);
  EXPECT_EQ(send("POST", "/admin/cache/pin", R"({"documents": ["a"]})").status, 401u);
  EXPECT_EQ(send("GET", "/admin/cache", "", "", {{"Authorization", "bearer secret"}}).status, 200u);
}

TEST_F(CacheTest, ShowsItsTreeInThreeForms) {
  start();
  controller_.set_tree(cache_tree());
  const json tree = json_of(send("GET", "/admin/cache/tree"));
  EXPECT_EQ(tree["total_nodes"], 4);
  ASSERT_EQ(tree["nodes"].size(), 3u);
  EXPECT_EQ(tree["nodes"][0]["parent"], nullptr);
  EXPECT_EQ(tree["nodes"][0]["document"], nullptr);
  EXPECT_EQ(tree["nodes"][1], (json{{"id", "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"},
                                    {"parent", "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"},
                                    {"document", "doc-1"},
                                    {"tokens", 300},
                                    {"device", "ready"},
                                    {"host", "ready"},
                                    {"users", 0},
                                    {"pinned", true},
                                    {"priority", 0.0}}));
  EXPECT_EQ(tree["nodes"][2]["device"], "pending");
  EXPECT_EQ(json_of(send("GET", "/admin/cache/tree?format=json")), tree);
  EXPECT_EQ(json_of(send("GET", "/admin/cache/tree?max_nodes=1"))["nodes"].size(), 1u);

  const http::Response text = send("GET", "/admin/cache/tree?format=text");
  EXPECT_EQ(text.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(text.body,
            "3 of 4 nodes\n"
            "root 0a0a0a0a  20 tokens  D  0 users  priority 2.5\n"
            "  doc-1  300 tokens  DH  0 users  pinned  priority 0\n"
            "    say \"hi\"\\  400 tokens  d  2 users  priority 0\n");
  const http::Response dot = send("GET", "/admin/cache/tree?format=dot&max_nodes=3");
  EXPECT_EQ(dot.content_type, "text/vnd.graphviz; charset=utf-8");
  EXPECT_THAT(dot.body,
              HasSubstr(R"([label="say \"hi\"\\\n400 tokens, d, 2 users, priority 0"];)"));
}

TEST_F(CacheTest, RefusesATreeThatIsTooLargeOrOfNoForm) {
  start();
  for (const char* bad : {"0", "-1", "100001", "99999999999", "ten", "", "1.5"}) {
    const http::Response refused = send("GET", str_cat("/admin/cache/tree?max_nodes=", bad));
    EXPECT_EQ(refused.status, 400u) << bad;
    const json error = json_of(refused)["error"];
    EXPECT_EQ(error["param"], "max_nodes");
    EXPECT_THAT(error["message"].get<std::string>(), StartsWith("max_nodes: must be 1 to 100000"));
  }
  EXPECT_EQ(json_of(send("GET", "/admin/cache/tree?format=svg"))["error"]["message"],
            "format: must be one of json, text, dot");
  controller_.stop();
  EXPECT_EQ(send("GET", "/admin/cache/tree").status, 503u);
}

TEST_F(CacheTest, WarmsPinsAndUnpinsPaths) {
  start();
  auto warmed = post("warm", R"({"paths": [["a", "b"], ["c"]], "corpus": "wiki",
                                 "tenant": "acme", "system": "Be brief."})");
  const controller::v1::AnswerRequest first = end_next(grpc::Status::OK, 700, 20);
  EXPECT_THAT(first.retrieval().document_ids(), ElementsAre("a", "b"));
  EXPECT_EQ(first.retrieval().corpus(), "wiki");
  EXPECT_EQ(first.tenant(), "acme");
  EXPECT_EQ(first.messages(0).role(), controller::v1::ROLE_SYSTEM);
  EXPECT_EQ(first.messages(0).content(), "Be brief.");
  EXPECT_EQ(first.max_tokens(), 1u);
  EXPECT_EQ(first.path_action(), controller::v1::PATH_ACTION_UNSPECIFIED);
  EXPECT_THAT(end_next(grpc::Status::OK, 300, 300).retrieval().document_ids(), ElementsAre("c"));
  const http::Response response = warmed.get();
  EXPECT_EQ(response.status, 200u);
  EXPECT_EQ(json_of(response), json::parse(R"({
      "paths": [{"documents": ["a", "b"], "tokens": 700, "cached_tokens": 20},
                {"documents": ["c"], "tokens": 300, "cached_tokens": 300}],
      "done": 2, "failed": 0, "tokens": 1000, "cached_tokens": 320})"));

  auto pinned = post("pin", R"({"documents": ["a"]})");
  const controller::v1::AnswerRequest pin = end_next(grpc::Status::OK, 300, 0);
  EXPECT_EQ(pin.path_action(), controller::v1::PATH_ACTION_KEEP);
  EXPECT_EQ(pin.messages_size(), 1);  // the service's own system message
  EXPECT_EQ(json_of(pinned.get())["done"], 1);

  auto unpinned = post("unpin", R"({"documents": ["a"]})");
  EXPECT_EQ(end_next(grpc::Status::OK, 300, 0).path_action(), controller::v1::PATH_ACTION_RELEASE);
  EXPECT_EQ(json_of(unpinned.get())["done"], 1);
}

TEST_F(CacheTest, TellsOfEachPathWhatIsWrongWithIt) {
  start();
  auto warmed = post("warm", R"({"paths": [["gone"], ["a"], ["long"]]})");
  end_next({grpc::StatusCode::NOT_FOUND, "document gone does not exist"});
  end_next(grpc::Status::OK, 300, 0);
  end_next({grpc::StatusCode::INVALID_ARGUMENT, "max_tokens: over the model's context"});
  const http::Response response = warmed.get();
  EXPECT_EQ(response.status, 200u);
  const json result = json_of(response);
  EXPECT_EQ(result["paths"][0]["error"]["message"], "document gone does not exist");
  EXPECT_EQ(result["paths"][0]["error"]["code"], "not_found");
  EXPECT_EQ(result["paths"][1]["tokens"], 300);
  EXPECT_FALSE(result["paths"][1].contains("error"));
  EXPECT_EQ(result["paths"][2]["error"]["type"], "invalid_request_error");
  EXPECT_EQ(result["done"], 1);
  EXPECT_EQ(result["failed"], 2);
}

TEST_F(CacheTest, StopsAtAFailureThatIsNotOfOnePath) {
  start();
  auto warmed = post("warm", R"({"paths": [["a"], ["b"], ["c"]]})");
  end_next(grpc::Status::OK, 300, 0);
  end_next({grpc::StatusCode::UNAVAILABLE, "no worker"});
  const http::Response response = warmed.get();
  EXPECT_EQ(response.status, 503u);
  EXPECT_EQ(json_of(response)["error"]["message"], "paths[1]: no worker");
  EXPECT_EQ(controller_.requests().size(), 2u);

  const http::Response late = send("POST", "/admin/cache/warm", R"({"documents": ["a"]})",
                                   "application/json", {{"X-Request-Timeout-Ms", "50"}});
  EXPECT_EQ(late.status, 504u);
}

TEST_F(CacheTest, NamesFieldAndBoundOfBadPaths) {
  start({.default_top_k = 2, .max_top_k = 3});
  std::string many = R"({"paths": [["a"])";
  for (int i = 1; i < 257; ++i) many += R"(,["a"])";
  const std::string long_tenant =
      str_cat(R"({"documents": ["a"], "tenant": ")", std::string(65, 'a'), "\"}");
  const std::pair<std::string, const char*> cases[] = {
      {"[]", "body: must be an object, not an array"},
      {"{}", "paths: is required"},
      {R"({"paths": [["a"]], "documents": ["a"]})", "documents: is one path, instead of paths"},
      {R"({"paths": "a"})", "paths: must be an array of paths, not a string"},
      {R"({"paths": []})", "paths: must hold 1 to 256 paths, not 0"},
      {many + "]}", "paths: must hold 1 to 256 paths, not 257"},
      {R"({"paths": ["a"]})", "paths[0]: must be an array of ids, not a string"},
      {R"({"paths": [["a"], ["b", 7]]})", "paths[1][1]: must be a string, not a number"},
      {R"({"paths": [["a"], []]})", "paths[1]: must hold 1 to 3 ids, not 0"},
      {R"({"paths": [["a", "b", "c", "d"]]})", "paths[0]: must hold 1 to 3 ids, not 4"},
      {R"({"paths": [["a", ""]]})", "paths[0][1]: must be 1 to 256 bytes long, not 0"},
      {R"({"documents": []})", "documents: must hold 1 to 3 ids, not 0"},
      {R"({"documents": [["a", "b"]]})", "documents[0]: must be a string, not an array"},
      {R"({"documents": ["a", "b\n"]})", "documents[1]: must not hold control characters"},
      {R"({"documents": ["a"], "corpus": "A"})", "corpus: must be 1 to 64 of a-z"},
      {R"({"documents": ["a"], "corpus": 1})", "corpus: must be a string, not a number"},
      {long_tenant, "tenant: must be 1 to 64 bytes long, not 65"},
      {R"({"documents": ["a"], "tenant": ""})", "tenant: must be 1 to 64 bytes long, not 0"},
      {R"({"documents": ["a"], "system": ""})", "system: must be 1 to 4194304 bytes long, not 0"},
      {R"({"documents": ["a"], "question": "?"})", "question: unknown parameter"},
  };
  for (const auto& [body, message] : cases) {
    for (const char* action : {"warm", "pin", "unpin"}) {
      const http::Response refused = send("POST", str_cat("/admin/cache/", action), body);
      EXPECT_EQ(refused.status, 400u) << message;
      EXPECT_THAT(json_of(refused)["error"]["message"].get<std::string>(), StartsWith(message));
    }
  }
  EXPECT_EQ(send("POST", "/admin/cache/warm", "{", "application/json").status, 400u);
  EXPECT_EQ(send("POST", "/admin/cache/warm", "{}", "text/plain").status, 415u);
  EXPECT_EQ(send("GET", "/admin/cache/warm").status, 405u);
  EXPECT_TRUE(controller_.requests().empty());
}

}  // namespace
}  // namespace ragcache::gateway
