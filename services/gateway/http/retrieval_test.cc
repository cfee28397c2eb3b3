#include <cstring>

#include "absl/strings/escaping.h"
#include "common/strings.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Filter = types::v1::Filter;

// Search, embeddings and corpora.
class RetrievalTest : public GatewayTest {
 protected:
  http::Response search(const json& body) { return send("POST", "/v1/search", body.dump()); }
  http::Response embed(json body) {
    body.emplace("model", "ragcache");
    return send("POST", "/v1/embeddings", body.dump());
  }
  void upload(const std::string& id, const json& metadata = json::object()) {
    const json document = {
        {"id", id}, {"title", "T " + id}, {"text", "some text"}, {"metadata", metadata}};
    ASSERT_EQ(send("POST", "/v1/documents", document.dump()).status, 200u);
  }
  static std::string message_of(const http::Response& response) {
    EXPECT_EQ(response.status, 400u) << response.body;
    return json_of(response)["error"]["message"];
  }
};

TEST_F(RetrievalTest, Searches) {
  start();
  upload("a", {{"year", 7}, {"tags", {"x", 1.5, true}}});
  upload("b");
  upload("c");
  EXPECT_EQ(json_of(search({{"query", "x"}, {"top_k", 2}})), json::parse(R"({
    "documents": [{"id":"a","title":"T a","text":"some text","score":1.0,"rank":1,
                   "metadata":{"year":7,"tags":["x",1.5,true]}},
                  {"id":"b","title":"T b","text":"some text","score":0.5,"rank":2,"metadata":{}}],
    "timings": {"embed_ms": 1.5, "search_ms": 0.25}})"));
  EXPECT_EQ(search({{"query", "x"}, {"corpus", "nowhere"}}).status, 404u);
  retrieval_.fail_searches(grpc::Status(grpc::StatusCode::UNAVAILABLE, "index is loading"));
  EXPECT_EQ(search({{"query", "x"}}).status, 503u);
}

TEST_F(RetrievalTest, SearchesByAnEmbedding) {
  start();
  EXPECT_EQ(search({{"embedding", {0.5, -1, 0, 2}}}).status, 200u);
  EXPECT_THAT(retrieval_.last_search().embedding(), ElementsAre(0.5f, -1, 0, 2));
  EXPECT_EQ(message_of(search({{"embedding", {1, 2, 3}}})),
            "embedding: must hold 4 numbers, the index's dimension, not 3");
}

TEST_F(RetrievalTest, NamesFieldAndBoundOfABadSearch) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "query: is required, or an embedding"},
      {R"({"query": ""})", "query: must be 1 to 32768 bytes long, not 0"},
      {R"({"query": ["x"]})", "query: must be a string, not an array"},
      {R"({"query": "x", "embedding": [1, 2, 3, 4]})", "embedding: cannot be given with a query"},
      {R"({"embedding": []})", "embedding: must be an array of numbers"},
      {R"({"embedding": [1, "x", 3, 4]})", "embedding[1]: must be a number, not a string"},
      {R"({"embedding": [1e39, 0, 0, 0]})", "embedding: must hold finite numbers"},
      {R"({"embedding": [0, 0, 0, 0]})", "embedding: must not be all zeros"},
      {R"({"query": "x", "top_k": 0})", "top_k: must be 1 to 100, not 0"},
      {R"({"query": "x", "top_k": 101})", "top_k: must be 1 to 100, not 101"},
      {R"({"query": "x", "corpus": ""})", "corpus: must be 1 to"},
      {R"({"query": "x", "filter": []})", "filter: must be an object, not an array"},
      {R"({"query": "x", "filter": {"a": null}})", "filter.a: must be a string, a number or"},
      {R"({"query": "x", "filter": {"a": [1]}})", "filter.a: must be a string, a number or"},
      {R"({"query": "x", "filter": {"a": {}}})", "filter.a: must name an operator"},
      {R"({"query": "x", "filter": {"a": {"near": 1}}})", "filter.a.near: unknown operator"},
      {R"({"query": "x", "filter": {"a": {"in": 1}}})", "filter.a.in: must be an array, not a"},
      {R"({"query": "x", "filter": {"a": {"in": []}}})", "filter.a: must have 1 to 256 values"},
      {R"({"query": "x", "filter": {"a": {"in": [[]]}}})", "filter.a.in[0]: must be a string"},
      {R"({"query": "x", "filter": {"a": {"lt": true}}})", "filter.a: lt, lte, gt and gte take"},
      {R"({"query": "x", "filter": {"a": {"exists": 1}}})", "filter.a: exists takes true or"},
      {R"({"query": "x", "filter": {"": 1}})", "filter: a field's name: must be 1 to 256 bytes"},
      {R"({"query": "x", "language": "en"})", "language: unknown parameter"}};
  for (const auto& [body, message] : cases) {
    EXPECT_THAT(message_of(send("POST", "/v1/search", body)), testing::StartsWith(message)) << body;
  }
  json many = {{"query", "x"}, {"filter", json::object()}};
  for (int i = 0; i < 33; ++i) many["filter"][str_cat("f", i)] = i;
  EXPECT_EQ(message_of(search(many)), "filter: must hold at most 32 conditions, not 33");
}

TEST_F(RetrievalTest, UnderstandsEveryOperatorOfAFilter) {
  start();
  const json filter = json::parse(R"({
    "a": "x", "b": {"ne": 2}, "c": {"in": ["x", 1, true]}, "d": {"nin": [false]},
    "e": {"gte": 1990, "lt": 2000}, "f": {"gt": "k", "lte": "m"}, "g": {"exists": false}})");
  ASSERT_EQ(search({{"query", "x"}, {"filter", filter}}).status, 200u);
  std::vector<std::string> conditions;
  const auto got = retrieval_.last_search().filter();
  for (const Filter::Condition& condition : got.conditions()) {
    std::string text = str_cat(condition.field(), " ", Filter::Operator_Name(condition.op()));
    for (const auto& value : condition.values()) {
      text += value.has_text()     ? " " + value.text()
              : value.has_number() ? str_cat(" ", value.number())
              : value.flag()       ? " true"
                                   : " false";
    }
    conditions.push_back(std::move(text));
  }
  EXPECT_THAT(conditions,
              ElementsAre("a OPERATOR_IN x", "b OPERATOR_NOT_IN 2", "c OPERATOR_IN x 1 true",
                          "d OPERATOR_NOT_IN false", "e OPERATOR_GREATER_OR_EQUAL 1990",
                          "e OPERATOR_LESS 2000", "f OPERATOR_GREATER k",
                          "f OPERATOR_LESS_OR_EQUAL m", "g OPERATOR_EXISTS false"));
}

TEST_F(RetrievalTest, Embeds) {
  start();
  EXPECT_EQ(json_of(embed({{"input", "three"}})), json::parse(R"({
    "object": "list", "model": "fake-embedder",
    "data": [{"object": "embedding", "index": 0, "embedding": [5.0, 0.1, -0.5, 0.0]}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5}})"));
  const json encoded = json_of(embed({{"input", {"a", "bb"}},
                                      {"model", "fake-embedder"},
                                      {"encoding_format", "base64"},
                                      {"dimensions", 4},
                                      {"user", "u"}}));
  ASSERT_EQ(encoded["data"].size(), 2u);
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(encoded["data"][1]["embedding"].get<std::string>(), &bytes));
  float values[4];
  ASSERT_EQ(bytes.size(), sizeof(values));
  std::memcpy(values, bytes.data(), sizeof(values));
  EXPECT_THAT(values, ElementsAre(2, 0.1f, -0.5f, 0));
}

TEST_F(RetrievalTest, EmbedsManyTextsInBatches) {
  start();
  std::vector<std::string> texts;
  for (int i = 1; i <= 150; ++i) texts.emplace_back(i, 'x');
  const json body = json_of(embed({{"input", texts}}));
  ASSERT_EQ(body["data"].size(), 150u);
  for (int i = 0; i < 150; ++i) {
    EXPECT_EQ(body["data"][i]["index"], i);
    EXPECT_EQ(body["data"][i]["embedding"][0], i + 1);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 150 * 151 / 2);
  EXPECT_THAT(retrieval_.embed_batches(), ElementsAre(64, 64, 22));
}

TEST_F(RetrievalTest, NamesFieldAndBoundOfBadEmbeddings) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input: is required"},
      {R"({"input": []})", "input: must be a string or 1 to 2048 strings"},
      {R"({"input": 1})", "input: must be a string or 1 to 2048 strings"},
      {R"({"input": [1, 2]})", "input: is not supported; only strings, not arrays of token ids"},
      {R"({"input": [[1, 2]]})", "input: is not supported; only strings, not arrays of token ids"},
      {R"({"input": ["x", ""]})", "input[1]: must be 1 to 65536 bytes long, not 0"},
      {R"({"input": "x", "encoding_format": "int8"})", "encoding_format: must be float or base64"},
      {R"({"input": "x", "dimensions": 3})",
       "dimensions: is not supported; only 4, those of fake-embedder"},
      {R"({"input": "x", "truncate": true})", "truncate: unknown parameter"}};
  for (const auto& [body, message] : cases) {
    EXPECT_EQ(message_of(embed(json::parse(body))), message) << body;
  }
  EXPECT_EQ(embed({{"input", std::vector<std::string>(2049, "x")}}).status, 400u);
  EXPECT_EQ(embed({{"input", "x"}, {"model", "text-embedding-3-small"}}).status, 404u);
}

TEST_F(RetrievalTest, MakesListsAndDeletesCorpora) {
  start();
  const json wanted = {
      {"cache_scope", "shared"}, {"chunk_tokens", 256}, {"chunk_overlap_tokens", 32}};
  const json made = json_of(send("PUT", "/v1/corpora/wiki", wanted.dump()));
  EXPECT_EQ(made["name"], "wiki");
  EXPECT_EQ(made["cache_scope"], "shared");
  EXPECT_EQ(made["chunk_tokens"], 256);
  EXPECT_EQ(made["chunk_overlap_tokens"], 32);
  EXPECT_EQ(json_of(send("PUT", "/v1/corpora/wiki", wanted.dump())), made);
  EXPECT_EQ(send("PUT", "/v1/corpora/wiki", R"({"cache_scope": "tenant"})").status, 409u);
  send("POST", "/v1/documents?corpus=wiki", R"({"id": "a", "text": "x"})");
  EXPECT_EQ(json_of(send("GET", "/v1/corpora/wiki"))["documents"], 1);
  const json all = json_of(send("GET", "/v1/corpora"));
  ASSERT_EQ(all["data"].size(), 2u);
  EXPECT_EQ(all["data"][0]["name"], "default");
  EXPECT_EQ(all["data"][1]["name"], "wiki");
  EXPECT_EQ(json_of(send("DELETE", "/v1/corpora/wiki")),
            json::parse(R"({"name": "wiki", "object": "corpus", "deleted": true,
                            "deleted_documents": 1})"));
  EXPECT_EQ(send("DELETE", "/v1/corpora/wiki").status, 404u);
  EXPECT_EQ(send("GET", "/v1/corpora/wiki").status, 404u);
}

TEST_F(RetrievalTest, NamesFieldAndBoundOfABadCorpus) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {R"({"cache_scope": "all"})", "cache_scope: must be tenant or shared"},
      {R"({"shards": 2})", "shards: unknown parameter"}};
  for (const auto& [body, message] : cases) {
    EXPECT_EQ(message_of(send("PUT", "/v1/corpora/x", body)), message) << body;
  }
  EXPECT_EQ(send("PUT", "/v1/corpora/Wiki", "{}").status, 400u);
  EXPECT_EQ(send("PUT", str_cat("/v1/corpora/", std::string(65, 'x')), "{}").status, 400u);
}

}  // namespace
}  // namespace ragcache::gateway
