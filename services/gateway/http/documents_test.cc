#include <condition_variable>
#include <mutex>

#include "common/http/testing.h"
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
  EXPECT_EQ(json_of(response), (json{{"accepted", 1000}, {"tokens", 9000}, {"pieces", 1000}}));
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

TEST_F(DocumentsTest, TakesATextThatTheQueryNames) {
  start();
  struct Case {
    const char* type;
    const char* query;
    std::string body;
    const char* title;
    const char* text;
  };
  const Case cases[] = {
      {"text/plain", "?id=a", "\xEF\xBB\xBF one\r\ntwo ", "", "one\ntwo"},
      {"text/plain; charset=\"UTF-8\"", "?id=a&title=T%20%C3%BC", "x", "T ü", "x"},
      {"Text/Markdown;charset=utf-8", "?id=a", "# Ants\n\nThey **dig**.\n", "Ants",
       "Ants\n\nThey dig."},
      {"text/html", "?id=a", "<title>Ants</title><p>They&nbsp;<b>dig</b>.<script>x</script>",
       "Ants", "They dig."},
      {"text/html", "?id=a&title=Mine", "<title>Ants</title><p>x", "Mine", "x"},
  };
  for (const Case& c : cases) {
    const http::Response response = send("POST", str_cat("/v1/documents", c.query), c.body, c.type);
    EXPECT_EQ(response.status, 200u) << response.body;
    EXPECT_EQ(json_of(response)["accepted"], 1);
    const json document = json_of(send("GET", "/v1/documents/a"));
    EXPECT_EQ(document["title"], c.title) << c.type;
    EXPECT_EQ(document["text"], c.text) << c.type;
  }
  EXPECT_EQ(retrieval_.stored(), 1u);

  ASSERT_EQ(send("PUT", "/v1/corpora/other", "", "").status, 200u);
  EXPECT_EQ(send("POST", "/v1/documents?id=dir%2Fb&corpus=other", http::gzip("packed"),
                 "text/plain", {{"Content-Encoding", "gzip"}})
                .status,
            200u);
  EXPECT_EQ(json_of(send("GET", "/v1/documents/dir%2Fb?corpus=other"))["text"], "packed");
}

TEST_F(DocumentsTest, NamesWhatIsWrongWithAText) {
  start({.max_document_bytes = 2000});
  struct Case {
    const char* query;
    std::string body;
    const char* message;
  };
  const std::string long_id = "?id=" + std::string(257, 'x');
  const Case cases[] = {
      {"", "x", "id: is required with a text, as ?id="},
      {"?id=", "x", "id: must be 1 to 256 bytes long, not 0"},
      {long_id.c_str(), "x", "id: must be 1 to 256 bytes long, not 257"},
      {"?id=%ff", "x", "id: must be UTF-8"},
      {"?id=a%0Ab", "x", "id: must not hold control characters"},
      {"?id=a&title=%ff", "x", "title: must be UTF-8"},
      {"?id=a&corpus=UPPER", "x", "corpus: must be 1 to 64 of"},
      {"?id=a", "caf\xe9", "body: no valid UTF-8 at byte 3"},
      {"?id=a", std::string("a\0b", 3), "body: byte 1 is zero: not a text"},
      {"?id=a", "\xff\xfex", "body: is UTF-16: only UTF-8 is read"},
      {"?id=a", " \n", "text: must be 1 to 2000 bytes long, not 0"},
      {"?id=a", std::string(2001, 'x'), "text: must be 1 to 2000 bytes long, not 2001"},
  };
  for (const Case& c : cases) {
    const http::Response response =
        send("POST", str_cat("/v1/documents", c.query), c.body, "text/plain");
    EXPECT_EQ(response.status, 400u) << c.message;
    EXPECT_THAT(json_of(response)["error"]["message"].get<std::string>(), StartsWith(c.message));
  }
  EXPECT_EQ(send("POST", "/v1/documents?id=a", "<meta charset=latin1>\xe9", "text/html").status,
            400u);
  const http::Response other = send("POST", "/v1/documents?id=a", "x", "text/html; charset=latin1");
  EXPECT_EQ(other.status, 415u);
  EXPECT_THAT(other.body, HasSubstr("charset must be utf-8, not `latin1`"));
  EXPECT_EQ(send("POST", "/v1/documents?id=a", "x", "text/css").status, 415u);
  EXPECT_EQ(
      send("POST", "/v1/documents?id=a", std::string((16 << 20) + 1, ' '), "text/plain").status,
      413u);
  EXPECT_EQ(retrieval_.stored(), 0u);
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
  EXPECT_THAT(answer, EndsWith("{\"accepted\":2,\"tokens\":18,\"pieces\":2,\"done\":true}\n"));
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
      {"{\"id\":\"x\",\"text\":\"\xff\"}", "line 3: text: must be UTF-8: see byte 18"},
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
  EXPECT_TRUE(retrieval_.wait_upserts_ended(1));
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
  // As the ids of a long document's pieces are.
  EXPECT_EQ(send("GET", "/v1/documents/" + std::string(256, 'x') + "%231").status, 404u);
}

TEST_F(DocumentsTest, TheLaterOfTwoDocumentsOfOneIdWins) {
  start();
  EXPECT_EQ(
      json_of(upload(line_of("a", "first") + line_of("b") + line_of("a", "second")))["accepted"],
      3);
  EXPECT_EQ(json_of(send("GET", "/v1/documents/a"))["text"], "second");
}

TEST_F(DocumentsTest, KeepsMetadata) {
  start();
  const json metadata = {{"lang", "en"}, {"year", 1999}, {"open", true}, {"tags", {"x", "y"}}};
  json document = json::parse(line_of("a"));
  document["metadata"] = metadata;
  ASSERT_EQ(send("POST", "/v1/documents", document.dump()).status, 200u);
  EXPECT_EQ(json_of(send("GET", "/v1/documents/a"))["metadata"], metadata);
  const std::pair<const char*, const char*> cases[] = {
      {R"("x")", "metadata: must be an object, not a string"},
      {R"({"": 1})", "metadata: a field's name must be 1 to 256 bytes long"},
      {R"({"a": null})", "metadata.a: must be a string, a number, a boolean, or a list of these"},
      {R"({"a": {"b": 1}})", "metadata.a: must be a string, a number, a boolean, or a list"},
      {R"({"a": [1, [2]]})", "metadata.a[1]: must be a string, a number, a boolean, or a list"},
  };
  for (const auto& [bad, message] : cases) {
    document["metadata"] = json::parse(bad);
    EXPECT_THAT(send("POST", "/v1/documents", document.dump()).body, HasSubstr(message)) << bad;
  }
  json many = json::object();
  for (int i = 0; i < 65; ++i) many[str_cat("f", i)] = i;
  document["metadata"] = many;
  EXPECT_THAT(send("POST", "/v1/documents", document.dump()).body,
              HasSubstr("metadata: must hold at most 64 fields, not 65"));
}

TEST_F(DocumentsTest, PutsOneDocument) {
  start();
  EXPECT_EQ(json_of(send("PUT", "/v1/documents/a%2Fb", R"({"title": "T", "text": "four"})")),
            (json{{"id", "a/b"}, {"object", "document"}, {"tokens", 4}, {"pieces", 1}}));
  EXPECT_EQ(json_of(send("GET", "/v1/documents/a%2Fb"))["title"], "T");
  EXPECT_EQ(send("PUT", "/v1/documents/a", R"({"id": "a", "text": "x"})").status, 200u);
  EXPECT_THAT(send("PUT", "/v1/documents/a", R"({"id": "b", "text": "x"})").body,
              HasSubstr("id: differs from the path's"));
  EXPECT_THAT(send("PUT", "/v1/documents/a", "[1]").body, HasSubstr("must be an object"));
  EXPECT_THAT(send("PUT", "/v1/documents/a", "{}").body, HasSubstr("text: is required"));
}

TEST_F(DocumentsTest, DeletesManyAtOnce) {
  start();
  upload(line_of("a") + line_of("b") + line_of("c"));
  EXPECT_EQ(json_of(send("POST", "/v1/documents/delete", R"({"ids": ["a", "c", "nowhere"]})")),
            (json{{"object", "list"}, {"deleted", 2}}));
  EXPECT_EQ(retrieval_.stored(), 1u);
  for (const char* bad : {R"({})", R"({"ids": []})", R"({"ids": "a"})", R"({"ids": [1]})",
                          R"({"ids": [""]})", R"({"ids": ["a"], "x": 1})"}) {
    EXPECT_EQ(send("POST", "/v1/documents/delete", bad).status, 400u) << bad;
  }
}

TEST_F(DocumentsTest, KeepsCorporaApart) {
  start();
  ASSERT_EQ(send("PUT", "/v1/corpora/other", "", "").status, 200u);
  upload(line_of("a", "default's"));
  // A line's own corpus goes before the upload's.
  const json counts =
      json_of(upload(line_of("a", "other's") + R"({"id": "b", "text": "x", "corpus": "default"})" +
                         "\n" + line_of("c"),
                     "?corpus=other"));
  EXPECT_EQ(counts["accepted"], 3);
  EXPECT_EQ(json_of(send("GET", "/v1/documents/a"))["text"], "default's");
  EXPECT_EQ(json_of(send("GET", "/v1/documents/a?corpus=other"))["text"], "other's");
  EXPECT_EQ(json_of(send("GET", "/v1/documents?corpus=other"))["total"], 2);
  EXPECT_EQ(json_of(send("GET", "/v1/documents"))["total"], 2);
  EXPECT_EQ(send("DELETE", "/v1/documents/b?corpus=other").status, 404u);
  EXPECT_EQ(send("DELETE", "/v1/documents/c?corpus=other").status, 200u);
  EXPECT_EQ(upload(line_of("x"), "?corpus=nowhere").status, 404u);
  for (const char* bad : {"?corpus=", "?corpus=UPPER", "?corpus=a%2Fb"}) {
    EXPECT_EQ(upload(line_of("x"), bad).status, 400u) << bad;
  }
}

TEST_F(DocumentsTest, ShowsWhatAPieceWasCutFrom) {
  start();
  controller::v1::AnswerResponse found = retrieved();
  found.mutable_retrieved()->mutable_documents(0)->set_source_id("long");
  controller_.script({found, completed()});
  const json documents =
      json_of(send("POST", "/v1/chat/completions", chat_body().dump()))["documents"];
  EXPECT_EQ(documents[0]["source_id"], "long");
  EXPECT_FALSE(documents[1].contains("source_id"));
}

}  // namespace
}  // namespace ragcache::gateway
