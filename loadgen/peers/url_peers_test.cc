#include "loadgen/peers/url_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace ragcache::loadgen {
namespace {

using testing::HasSubstr;

constexpr const char* kVariable = "RAGCACHE_URL_PEERS_TEST_KEY";

TEST(UrlPeers, AreAskedForAnswersOfFullLengthWithoutAKey) {
  const auto peers = url_peers({.urls = {"vllm=http://127.0.0.1:8000", "b=http://host:1/v1?x=y"}});
  ASSERT_TRUE(peers.ok()) << peers.status();
  ASSERT_EQ(peers->size(), 2u);
  EXPECT_EQ(peers->front().name, "vllm");
  const EndpointOptions& endpoint = peers->front().endpoint;
  EXPECT_EQ(endpoint.url, "http://127.0.0.1:8000");
  EXPECT_EQ(endpoint.model, "ragcache");
  EXPECT_EQ(endpoint.api_key, "");
  EXPECT_FALSE(endpoint.segments);
  EXPECT_EQ(endpoint.extra, R"({"ignore_eos": true})");
  EXPECT_EQ(peers->back().name, "b");
  EXPECT_EQ(peers->back().endpoint.url, "http://host:1/v1?x=y");
}

TEST(UrlPeers, HaveModelsKeysAndMembersOfTheirOwn) {
  setenv(kVariable, "secret", 1);
  const auto peers = url_peers({.urls = {"a=http://a", "b=http://b"},
                                .models = {"b=some/model"},
                                .key_variables = {std::string("b=") + kVariable},
                                .extras = {R"(b={"min_tokens": 1, "x": "a=b"})"}});
  unsetenv(kVariable);
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ(peers->front().endpoint.model, "ragcache");
  EXPECT_EQ(peers->front().endpoint.api_key, "");
  const EndpointOptions& endpoint = peers->back().endpoint;
  EXPECT_EQ(endpoint.model, "some/model");
  EXPECT_EQ(endpoint.api_key, "secret");
  EXPECT_EQ(endpoint.extra, R"({"min_tokens": 1, "x": "a=b"})");
}

TEST(UrlPeers, AreRefusedWithTheOptionThatIsWrong) {
  unsetenv(kVariable);
  const std::vector<std::string> urls{"a=http://a"};
  const std::pair<UrlPeerOptions, const char*> cases[] = {
      {{.urls = {"http://a"}}, R"(--url: is "http://a", must be NAME=http://host:port)"},
      {{.urls = {"=http://a"}}, "--url: is"},
      {{.urls = {"a=http://a", "a=http://b"}}, "--url: has a twice"},
      {{.urls = urls, .models = {"b=m"}}, R"(--url-model: has "b", must be a name of --url)"},
      {{.urls = urls, .models = {"a"}}, R"(--url-model: is "a", must be NAME=MODEL)"},
      {{.urls = urls, .key_variables = {std::string("a=") + kVariable}},
       "--url-key-env: RAGCACHE_URL_PEERS_TEST_KEY, for a, is not in the environment"},
      {{.urls = urls, .extras = {"a=[1]"}},
       R"(--url-extra: for a is "[1]", must be a JSON object)"},
      {{.urls = urls, .extras = {"a={"}}, "--url-extra: for a"},
  };
  for (const auto& [options, words] : cases) {
    const auto peers = url_peers(options);
    ASSERT_TRUE(absl::IsInvalidArgument(peers.status())) << words;
    EXPECT_THAT(std::string(peers.status().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace ragcache::loadgen
