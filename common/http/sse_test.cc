#include "common/http/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ragcache::http {
namespace {

using Events = std::vector<std::pair<std::string, std::string>>;

Events parse(std::string_view stream, size_t piece) {
  Events events;
  SseParser parser([&](const SseEvent& event) {
    events.emplace_back(event.type, event.data);
    return absl::OkStatus();
  });
  for (size_t at = 0; at < stream.size(); at += piece) {
    EXPECT_TRUE(parser.feed(stream.substr(at, piece)).ok());
  }
  return events;
}

TEST(SseParser, FindsTheSameEventsHoweverTheStreamIsCut) {
  const std::string stream =
      "\xEF\xBB\xBF"
      "data: {\"a\":1}\n\n"
      ": a comment\r\n"
      "event: progress\r\ndata:two\r\ndata: lines\r\n\r\n"
      "data\rid: 7\r\r"
      "event: without data\n\n"
      "data:  leading space kept\n\n"
      "data: cut off by the end";
  const Events expected = {{"message", "{\"a\":1}"},
                           {"progress", "two\nlines"},
                           {"message", ""},
                           {"message", " leading space kept"}};
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_EQ(parse(stream, piece), expected) << "pieces of " << piece << " bytes";
  }
}

TEST(SseParser, ReadsWhatTheWriterWrites) {
  EXPECT_EQ(sse_event("[DONE]"), "data: [DONE]\n\n");
  EXPECT_EQ(parse(sse_event("x") + sse_event("y"), 3),
            (Events{{"message", "x"}, {"message", "y"}}));
}

TEST(SseParser, RefusesAnEventWithoutEnd) {
  SseParser parser([](const SseEvent&) { return absl::OkStatus(); });
  const std::string piece(1 << 20, 'x');
  absl::Status status;
  for (int i = 0; i < 17 && status.ok(); ++i) status = parser.feed(piece);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(SseParser, StopsWhenTheSinkFails) {
  int seen = 0;
  SseParser parser([&](const SseEvent&) {
    ++seen;
    return absl::AbortedError("enough");
  });
  EXPECT_TRUE(absl::IsAborted(parser.feed("data: 1\n\ndata: 2\n\n")));
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace ragcache::http
