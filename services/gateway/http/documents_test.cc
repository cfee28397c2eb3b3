#include "services/gateway/documents.h"

#include <condition_variable>
#include <mutex>

#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string line_of(const std::string& id, const std::string& text = "some text") {
  return json{{"id", id}, {"title", "T " + id}, {"text", text}}.dump() + "\n";
}

class DocumentsTest : public GatewayTest {
 protected:
  http::Response upload(const std::string& lines, const std::string& query = "") {
    return send("POST", "/v1/documents" + query, lines, "application/x-ndjson");
  }
};

TEST_F(DocumentsTest, TakesLinesAndKeepsEveryOne) {
  start();
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += line_of(str_cat("d", i)) + (i % 7 == 0 ? "\r\n" : "");
  const http::Response response = upload(lines);
  EXPECT_EQ(response.status, 200u);
  EXPECT_EQ(json_of(response), (json{{"accepted", 1000}, {"tokens", 9000}}));
  EXPECT_EQ(retrieval_.stored(), 1000u);
  EXPECT_GT(retrieval_.largest_batch(), 1u);
  EXPECT_LE(retrieval_.largest_batch(), 64u);
}

TEST_F(DocumentsTest, TakesOneDocumentAndAnArray) {
  start();
  EXPECT_EQ(json_of(send("POST", "/v1/documents", line_of("one")))["accepted"], 1);
  const json array = json::array({json::parse(line_of("two")), json::parse(line_of("three"))});
  EXPECT_EQ(json_of(send("POST", "/v1/documents", array.dump()))["accepted"], 2);
  EXPECT_EQ(retrieval_.stored(), 3u);
  // Without its line break the last line counts too; without any line nothing does.
  EXPECT_EQ(json_of(upload(line_of("x") + R"({"id":"y","text":"t"})"))["accepted"], 2);
  EXPECT_EQ(json_of(upload(""))["accepted"], 0);
}

TEST_F(DocumentsTest, TellsProgressAsItIsAcknowledged) {
  start();
  // The last line goes up only when the progress of the first has come down.
  std::mutex mutex;
  std::string answer;
  int sent = 0;
  http::ClientRequest request{.method = "POST", .target = "/v1/documents"};
  request.headers = {{"Content-Type", "application/x-ndjson"}, {"Accept", "application/x-ndjson"}};
  request.body_source = [&]() -> absl::StatusOr<std::string> {
    if (sent == 2) return "";
    return line_of(str_cat("d", sent++));
  };
  const auto response =
      client().stream(request, [&](const http::Response& head, std::string_view bytes) {
        EXPECT_EQ(head.content_type, "application/x-ndjson");
        answer += bytes;
        return absl::OkStatus();
      });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(answer, EndsWith("{\"accepted\":2,\"tokens\":18,\"done\":true}\n"));
  EXPECT_THAT(answer, StartsWith("{\"accepted\":"));
  EXPECT_GE(std::count(answer.begin(), answer.end(), '\n'), 2);
}

TEST_F(DocumentsTest, NamesTheBadLineAndKeepsWhatCameBefore) {
  start({.max_document_bytes = 2000});
  const std::pair<std::string, std::string> cases[] = {
      {"{\"id\":\"x\"", "line 3: the body is not valid JSON"},
      {R"({"title":"t","text":"x"})", "line 3: id: is required"},
      {R"({"id":"","text":"x"})", "line 3: id: must be 1 to 256 bytes long, not 0"},
      {R"({"id":7,"text":"x"})", "line 3: id: must be a string, not a number"},
      {R"({"id":"a\nb","text":"x"})", "line 3: id: must not hold control characters"},
      {R"({"id":"x","text":""})", "line 3: text: must be 1 to 2000 bytes long, not 0"},
      {R"({"id":"x","text":"y","lang":"en"})", "line 3: lang: unknown parameter"},
      {R"(["x"])", "line 3: document: must be an object, not an array"},
      {"{\"id\":\"x\",\"text\":\"\xff\"}", "line 3: the body is not valid JSON"},
      {json{{"id", "x"}, {"text", std::string(3000, 'y')}}.dump(),
       "line 3: is longer than 2000 bytes"},
  };
  for (const auto& [line, message] : cases) {
    const http::Response response =
        upload(line_of("a") + line_of("b") + line + "\n" + line_of("never"));
    EXPECT_EQ(response.status, 400u) << line;
    const json body = json_of(response);
    EXPECT_THAT(body["error"]["message"].get<std::string>(), StartsWith(message));
    EXPECT_THAT(body["error"]["message"].get<std::string>(),
                HasSubstr("(2 documents before it were accepted)"));
    EXPECT_EQ(body["accepted"], 2);
  }
  EXPECT_EQ(retrieval_.stored(), 2u);
}

TEST_F(DocumentsTest, TellsABadLineInsideProgress) {
  start();
  const http::Response response = upload(line_of("a") + "{\n", "?progress=1");
  EXPECT_THAT(response.body, HasSubstr("line 2: "));
  EXPECT_EQ(retrieval_.stored(), 1u);
}

TEST_F(DocumentsTest, ReportsWhatRetrievalRefuses) {
  start();
  retrieval_.fail_at("bad", grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "disk is full"));
  const http::Response response = upload(line_of("bad") + line_of("later"));
  EXPECT_EQ(response.status, 429u);
  EXPECT_THAT(response.body, HasSubstr("disk is full (0 documents before it were accepted)"));
}

TEST_F(DocumentsTest, ReadsNoFasterThanRetrievalTakes) {
  start();
  retrieval_.pause_upserts();
  constexpr size_t kPiece = 64 << 10;
  constexpr size_t kTotal = 32 << 20;
  std::mutex mutex;
  std::condition_variable changed;
  size_t sent = 0;
  http::ClientRequest request{.method = "POST", .target = "/v1/documents"};
  request.headers = {{"Content-Type", "application/x-ndjson"}};
  request.body_source = [&]() -> absl::StatusOr<std::string> {
    std::lock_guard lock(mutex);
    if (sent >= kTotal) return "";
    sent += kPiece;
    changed.notify_all();
    return line_of(str_cat("d", sent / kPiece), std::string(kPiece, 'x'));
  };
  std::thread uploader([&] {
    const auto response = client().fetch(request);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(json_of(*response)["accepted"], kTotal / kPiece);
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_FALSE(
        changed.wait_for(lock, std::chrono::milliseconds(300), [&] { return sent > kTotal / 2; }))
        << "the gateway took " << sent << " bytes that nobody read";
  }
  retrieval_.resume_upserts();
  uploader.join();
  EXPECT_EQ(retrieval_.stored(), kTotal / kPiece);
}

TEST_F(DocumentsTest, CancelsTheUploadOfAClientThatLeaves) {
  start();
  http::ClientRequest request{.method = "POST", .target = "/v1/documents"};
  request.headers = {{"Content-Type", "application/x-ndjson"}};
  int sent = 0;
  request.body_source = [&]() -> absl::StatusOr<std::string> {
    if (sent++ == 0) return line_of("first");
    EXPECT_TRUE(retrieval_.wait_stored(1));
    return absl::AbortedError("changed my mind");
  };
  EXPECT_TRUE(absl::IsAborted(client().fetch(request).status()));
  EXPECT_TRUE(retrieval_.wait_upsert_cancelled());
}

TEST_F(DocumentsTest, PagesThroughTheList) {
  start();
  std::string lines;
  for (char c = 'a'; c <= 'g'; ++c) lines += line_of(std::string(1, c));
  upload(lines);
  std::vector<std::string> ids;
  std::string after;
  json page;
  do {
    page = json_of(send("GET", "/v1/documents?limit=3" + after));
    EXPECT_EQ(page["total"], 7);
    for (const json& document : page["data"]) ids.push_back(document["id"]);
    if (!page["data"].empty()) after = "&after=" + page["last_id"].get<std::string>();
  } while (page["has_more"].get<bool>());
  EXPECT_THAT(ids, testing::ElementsAre("a", "b", "c", "d", "e", "f", "g"));
  for (const char* query : {"limit=0", "limit=1001", "limit=x", "limit=", "after=%ff", "after="}) {
    EXPECT_EQ(send("GET", str_cat("/v1/documents?", query)).status, 400u) << query;
  }
}

TEST_F(DocumentsTest, GetsAndDeletesByAnyId) {
  start();
  const std::string id = "dir/a b?ü";
  upload(line_of(id, "text of it"));
  const std::string path = "/v1/documents/" + http::percent_encode(id);
  const json document = json_of(send("GET", path));
  EXPECT_EQ(document["id"], id);
  EXPECT_EQ(document["title"], "T " + id);
  EXPECT_EQ(document["text"], "text of it");
  EXPECT_EQ(document["content_digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(json_of(send("DELETE", path)),
            (json{{"id", id}, {"object", "document"}, {"deleted", true}}));
  EXPECT_EQ(send("GET", path).status, 404u);
  EXPECT_EQ(send("DELETE", path).status, 404u);
}

TEST_F(DocumentsTest, Searches) {
  start();
  upload(line_of("a") + line_of("b") + line_of("c"));
  const http::Response response = send("POST", "/v1/search", R"({"query":"x","top_k":2})");
  EXPECT_EQ(json_of(response), json::parse(R"({
    "documents": [{"id":"a","title":"T a","text":"some text","score":1.0,"rank":1},
                  {"id":"b","title":"T b","text":"some text","score":0.5,"rank":2}],
    "timings": {"embed_ms": 1.5, "search_ms": 0.25}})"));
  EXPECT_THAT(send("POST", "/v1/search", R"({"query":""})").body,
              HasSubstr("query: must be 1 to 32768 bytes long"));
  EXPECT_THAT(send("POST", "/v1/search", R"({"query":"x","top_k":101})").body,
              HasSubstr("top_k: must be 1 to 100, not 101"));
  retrieval_.fail_searches(grpc::Status(grpc::StatusCode::UNAVAILABLE, "index is loading"));
  EXPECT_EQ(send("POST", "/v1/search", R"({"query":"x"})").status, 503u);
}

}  // namespace
}  // namespace ragcache::gateway
