#include "common/http/router.h"

#include <gtest/gtest.h>

namespace ragcache::http {
namespace {

Handler nothing() {
  return [](Exchange&) -> boost::asio::awaitable<void> { co_return; };
}

Router documents() {
  Router router;
  router.add("GET", "/v1/documents", nothing());
  router.add("POST", "/v1/documents", nothing());
  router.add("GET", "/v1/documents/{id}", nothing());
  router.add("DELETE", "/v1/documents/{id}", nothing());
  return router;
}

Request request_of(std::string method, std::string path) {
  Request request;
  request.method = std::move(method);
  request.path = std::move(path);
  return request;
}

TEST(Router, DecodesNamesAfterSplitting) {
  Request request = request_of("DELETE", "/v1/documents/a%2Fb%20c");
  const Router router = documents();
  const absl::StatusOr<Router::Match> match = router.match(request);
  ASSERT_TRUE(match.ok());
  EXPECT_NE(match->handler, nullptr);
  EXPECT_EQ(request.route, "/v1/documents/{id}");
  EXPECT_EQ(request.path_values, (Parameters{{"id", "a/b c"}}));
}

TEST(Router, ServesHeadByGet) {
  Request request = request_of("HEAD", "/v1/documents");
  EXPECT_NE(documents().match(request)->handler, nullptr);
}

TEST(Router, TellsWhichMethodsAPathHas) {
  Request request = request_of("PUT", "/v1/documents");
  const Router router = documents();
  const absl::StatusOr<Router::Match> match = router.match(request);
  ASSERT_TRUE(match.ok());
  EXPECT_EQ(match->handler, nullptr);
  EXPECT_EQ(match->allow, "GET, HEAD, POST");
}

TEST(Router, KnowsNoOtherPath) {
  for (const char* path : {"/", "", "/v1", "/v1/documents/", "/v1/documents/a/b", "v1/documents"}) {
    Request request = request_of("GET", path);
    const absl::StatusOr<Router::Match> match = documents().match(request);
    ASSERT_TRUE(match.ok());
    EXPECT_EQ(match->handler, nullptr) << path;
    EXPECT_EQ(match->allow, "") << path;
  }
}

TEST(Router, RefusesAMalformedEscape) {
  Request request = request_of("GET", "/v1/documents/%4");
  EXPECT_FALSE(documents().match(request).ok());
}

}  // namespace
}  // namespace ragcache::http
