#include "common/http/message.h"

#include <gtest/gtest.h>

#include "common/http/error.h"
#include "common/ids.h"

namespace ragcache::http {
namespace {

TEST(PercentEncoding, GivesBackEveryByte) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  const absl::StatusOr<std::string> back = percent_decode(percent_encode(all));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, all);
}

TEST(PercentEncoding, RefusesMalformedEscapes) {
  for (const char* text : {"%", "%1", "a%4", "%zz", "%4g", "ok%"}) {
    EXPECT_FALSE(percent_decode(text).ok()) << text;
  }
  EXPECT_EQ(*percent_decode("%41%2f"), "A/");
}

TEST(RequestTarget, SplitsPathAndQuery) {
  Request request;
  ASSERT_TRUE(parse_target("/v1/documents?after=a%26b+c&limit=5&flag&x=1=2", request).ok());
  EXPECT_EQ(request.path, "/v1/documents");
  EXPECT_EQ(request.query,
            (Parameters{{"after", "a&b c"}, {"limit", "5"}, {"flag", ""}, {"x", "1=2"}}));
  EXPECT_EQ(*find_parameter(request.query, "limit"), "5");
  EXPECT_EQ(find_parameter(request.query, "nothing"), nullptr);
}

TEST(RequestTarget, TakesTheAbsoluteForm) {
  Request request;
  ASSERT_TRUE(parse_target("http://example.org:80/livez?x=1", request).ok());
  EXPECT_EQ(request.path, "/livez");
  Request root;
  ASSERT_TRUE(parse_target("HTTP://example.org", root).ok());
  EXPECT_EQ(root.path, "/");
}

TEST(HostPort, TakesNamesAndBracketedAddresses) {
  EXPECT_EQ(parse_host_port("[::1]:0")->host, "::1");
  EXPECT_EQ(parse_host_port("localhost:65535")->port, 65535);
  for (const char* text : {"", ":", "x", "x:", ":1", "x:65536", "x:-1", "x:1y"}) {
    EXPECT_FALSE(parse_host_port(text).ok()) << text;
  }
}

TEST(RequestId, RefusesWhatCouldForgeALogLineOrHeader) {
  EXPECT_TRUE(is_valid_request_id(new_request_id()));
  EXPECT_NE(new_request_id(), new_request_id());
  for (const std::string& id : {std::string(), std::string(129, 'a'), std::string("a b"),
                                std::string("a\r\nx: y"), std::string("\"")}) {
    EXPECT_FALSE(is_valid_request_id(id)) << id;
  }
}

TEST(HttpStatus, SurvivesTheWayThroughAStatus) {
  for (unsigned status : {400u, 408u, 413u, 415u, 431u, 501u, 505u}) {
    EXPECT_EQ(http_status(error(status, "x")), status);
  }
  EXPECT_EQ(http_status(absl::ResourceExhaustedError("")), 429u);
  EXPECT_EQ(http_status(absl::UnavailableError("")), 503u);
  EXPECT_EQ(http_status(absl::DeadlineExceededError("")), 504u);
  EXPECT_EQ(http_status(absl::InvalidArgumentError("")), 400u);
}

TEST(TraceParent, HasTheShapeOfTraceContext) {
  const std::string good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_TRUE(is_valid_trace_parent(good));
  for (const std::string& bad : std::initializer_list<std::string>{
           "", good.substr(1), good + "0", "ff" + good.substr(2),
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) {
    EXPECT_FALSE(is_valid_trace_parent(bad)) << bad;
  }
}

}  // namespace
}  // namespace ragcache::http
