#include "services/retrieval/app.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/hash.h"
#include "common/model/model_files.h"
#include "common/rpc/server.h"
#include "common/strings.h"
#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Item = v1::UpsertDocumentsRequest::Item;

std::string models() { return std::string(std::getenv("RAG_DEPS_DIR")) + "/models"; }

Item item(const std::string& id, const std::string& title, const std::string& text) {
  Item made;
  made.set_id(id);
  made.set_title(title);
  made.set_text(text);
  return made;
}

const std::vector<Item>& encyclopedia() {
  static const std::vector<Item> items = {
      item("bees", "Bees", "Honey bees dance in the hive to tell others where flowers are."),
      item("tides", "Tides", "The moon pulls the sea, so the tide rises twice a day."),
      item("bread", "Bread", "Yeast makes the dough rise before it is baked in the oven."),
      item("saturn", "Saturn", "A small telescope shows the rings of the planet Saturn."),
      item("violin", "Violin", "The strings of a violin are bowed; its body is made of spruce."),
      item("comet", "", "Comets are lumps of ice and dust that grow a tail near the sun.")};
  return items;
}

class RetrievalApp : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        ::testing::TempDir() + "app_" + std::to_string(getpid()) + "_" + std::to_string(++folders_);
    std::filesystem::remove_all(folder_);
    config_.state_dir = folder_;
    config_.listen = "unix:" + folder_ + "/retrieval.sock";
    config_.model = models() + "/SmolLM2-135M-Instruct.Q4_1.gguf";
    config_.embedding_model = models() + "/all-minilm-l6-v2";
  }
  void TearDown() override {
    app_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    auto app = App::start(config_, registry_);
    ASSERT_TRUE(app.ok()) << app.status();
    app_ = *std::move(app);
    stub_ = v1::RetrievalService::NewStub(make_channel(app_->address()));
  }

  std::string start_error() {
    const auto app = App::start(config_, std::make_shared<prometheus::Registry>());
    EXPECT_FALSE(app.ok());
    return std::string(app.status().message());
  }

  struct Upserted {
    grpc::Status status;
    uint64_t accepted = 0;
    uint64_t tokens = 0;
    uint64_t pieces = 0;
  };

  // `per_message` items a message.
  Upserted upsert(const std::vector<Item>& items, size_t per_message = 4,
                  const std::string& corpus = "") {
    grpc::ClientContext context;
    const auto stream = stub_->UpsertDocuments(&context);
    for (size_t begin = 0; begin < items.size(); begin += per_message) {
      v1::UpsertDocumentsRequest request;
      request.set_corpus(corpus);
      for (size_t i = begin; i < std::min(begin + per_message, items.size()); ++i) {
        *request.add_items() = items[i];
      }
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    Upserted upserted;
    v1::UpsertDocumentsResponse response;
    while (stream->Read(&response)) {
      EXPECT_GE(response.accepted(), upserted.accepted);
      upserted.accepted = response.accepted();
      upserted.tokens = response.tokens();
      upserted.pieces = response.pieces();
    }
    upserted.status = stream->Finish();
    return upserted;
  }

  grpc::Status search(const std::string& query, uint32_t top_k, v1::SearchResponse& response) {
    v1::SearchRequest request;
    request.set_query(query);
    request.set_top_k(top_k);
    return search(request, response);
  }

  grpc::Status search(const v1::SearchRequest& request, v1::SearchResponse& response) {
    grpc::ClientContext context;
    const auto stream = stub_->Search(&context, request);
    int finals = 0;
    v1::SearchResponse stage;
    while (stream->Read(&stage)) {
      finals += stage.final();
      response = stage;
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(finals, status.ok() ? 1 : 0);
    return status;
  }

  std::vector<std::string> found(const std::string& query, uint32_t top_k) {
    v1::SearchResponse response;
    const grpc::Status status = search(query, top_k, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<std::string> ids;
    for (const auto& document : response.documents()) ids.push_back(document.id());
    return ids;
  }

  grpc::Status get(const std::vector<std::string>& ids, v1::GetDocumentsResponse& response) {
    grpc::ClientContext context;
    v1::GetDocumentsRequest request;
    request.mutable_ids()->Add(ids.begin(), ids.end());
    return stub_->GetDocuments(&context, request, &response);
  }

  v1::GetInfoResponse info() {
    grpc::ClientContext context;
    v1::GetInfoResponse response;
    EXPECT_TRUE(stub_->GetInfo(&context, {}, &response).ok());
    return response;
  }

  static inline int folders_ = 0;
  std::string folder_;
  Config config_;
  metrics::Registry registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<App> app_;
  std::unique_ptr<v1::RetrievalService::Stub> stub_;
};

TEST_F(RetrievalApp, FindsTheDocumentThatAQuestionIsAbout) {
  start();
  EXPECT_THAT(found("anything", 5), IsEmpty());
  const Upserted upserted = upsert(encyclopedia());
  ASSERT_TRUE(upserted.status.ok()) << upserted.status.error_message();
  EXPECT_EQ(upserted.accepted, 6u);
  EXPECT_GT(upserted.tokens, 6u * 10);
  EXPECT_THAT(found("How does a bee say where food is?", 1), ElementsAre("bees"));
  EXPECT_THAT(found("Why does the sea go up and down?", 1), ElementsAre("tides"));
  EXPECT_THAT(found("Which planet has rings?", 1), ElementsAre("saturn"));
  EXPECT_THAT(found("What grows a tail near the sun?", 1), ElementsAre("comet"));

  v1::SearchResponse response;
  ASSERT_TRUE(search("rings", 100, response).ok());
  ASSERT_THAT(response.documents(), SizeIs(6));
  EXPECT_GT(response.embed_us(), 0u);
  for (int i = 1; i < 6; ++i) {
    EXPECT_GE(response.documents(i - 1).score(), response.documents(i).score());
  }
  const auto model = ModelFiles::open(config_.model);
  const auto tokenizer = (*model)->tokenizer();
  for (const auto& document : response.documents()) {
    const std::vector<uint32_t> tokens(document.segment_tokens().begin(),
                                       document.segment_tokens().end());
    const std::string text = (*tokenizer)->decode(tokens);
    EXPECT_THAT(text, HasSubstr(document.text()));
    EXPECT_THAT(text, HasSubstr(document.title()));
    const Digest digest = digest_of_tokens(tokens);
    EXPECT_EQ(document.token_digest(), std::string(digest.begin(), digest.end()));
  }
  EXPECT_THAT(metrics::to_text(*registry_), HasSubstr("ragcache_documents 6\n"));
}

TEST_F(RetrievalApp, GetsListsReplacesAndDeletes) {
  start();
  ASSERT_TRUE(upsert(encyclopedia()).status.ok());
  v1::GetDocumentsResponse got;
  ASSERT_TRUE(get({"tides", "bees", "tides"}, got).ok());
  ASSERT_THAT(got.documents(), SizeIs(3));
  EXPECT_EQ(got.documents(0).id(), "tides");
  EXPECT_EQ(got.documents(1).text(), encyclopedia()[0].text());
  EXPECT_EQ(got.documents(2).content_digest(), got.documents(0).content_digest());

  const grpc::Status missing = get({"bees", "unicorns"}, got);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(missing.error_message(), HasSubstr("unicorns"));

  ASSERT_TRUE(upsert({item("bees", "Bees", "The bumblebee of the tundra shivers to keep warm."),
                      item("violin", "Violin", "A bow of horse hair.")})
                  .status.ok());
  EXPECT_THAT(found("shivering insects", 1), ElementsAre("bees"));
  EXPECT_EQ(info().documents(), 6u);

  std::vector<std::string> ids;
  v1::ListDocumentsRequest list;
  list.set_limit(4);
  while (true) {
    grpc::ClientContext context;
    v1::ListDocumentsResponse page;
    ASSERT_TRUE(stub_->ListDocuments(&context, list, &page).ok());
    EXPECT_EQ(page.total(), 6u);
    if (page.documents().empty()) break;
    for (const auto& document : page.documents()) ids.push_back(document.id());
    list.set_after_id(ids.back());
  }
  EXPECT_THAT(ids, ElementsAre("bees", "bread", "comet", "saturn", "tides", "violin"));

  grpc::ClientContext context;
  v1::DeleteDocumentsRequest request;
  for (const char* id : {"saturn", "unicorns", "comet"}) request.add_ids(id);
  v1::DeleteDocumentsResponse response;
  ASSERT_TRUE(stub_->DeleteDocuments(&context, request, &response).ok());
  EXPECT_EQ(response.deleted(), 2u);
  EXPECT_THAT(found("a planet with rings", 100), SizeIs(4));
}

TEST_F(RetrievalApp, KeepsTheCorpusOverARestartAndCostsNothingToSendAgain) {
  start();
  ASSERT_TRUE(upsert(encyclopedia()).status.ok());
  app_.reset();
  const auto files = std::filesystem::directory_iterator(folder_ + "/retrieval/shard-0-of-1");
  EXPECT_EQ(std::ranges::count(files, ".index",
                               [](const auto& file) { return file.path().extension().string(); }),
            1);
  start();
  EXPECT_EQ(info().documents(), 6u);
  EXPECT_EQ(info().index_kind(), "exact");
  EXPECT_EQ(info().dimension(), 384u);
  EXPECT_EQ(info().embedding_model(), "all-minilm-l6-v2");
  EXPECT_THAT(found("Which planet has rings?", 1), ElementsAre("saturn"));
  const Upserted again = upsert(encyclopedia());
  EXPECT_EQ(again.accepted, 6u);
  EXPECT_EQ(again.tokens, 0u);
}

TEST_F(RetrievalApp, AcknowledgesWhileTheClientStillSends) {
  start();
  grpc::ClientContext context;
  const auto stream = stub_->UpsertDocuments(&context);
  for (const Item& next : encyclopedia()) {
    v1::UpsertDocumentsRequest request;
    *request.add_items() = next;
    ASSERT_TRUE(stream->Write(request));
    v1::UpsertDocumentsResponse response;
    ASSERT_TRUE(stream->Read(&response));
    v1::GetDocumentsResponse got;
    EXPECT_TRUE(get({next.id()}, got).ok());
    EXPECT_THAT(found(next.text(), 1), ElementsAre(next.id()));
  }
  stream->WritesDone();
  v1::UpsertDocumentsResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RetrievalApp, NamesTheFieldTheBoundAndTheDocument) {
  start();
  const auto expect_refused = [&](const Item& bad, const std::vector<std::string>& parts) {
    const Upserted upserted = upsert({encyclopedia()[0], encyclopedia()[1], bad});
    EXPECT_EQ(upserted.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    for (const std::string& part : parts) {
      EXPECT_THAT(upserted.status.error_message(), HasSubstr(part));
    }
  };
  expect_refused(item("", "t", "x"), {"document 2", "id: is empty"});
  expect_refused(item("i", "t", ""), {"'i'", "text: is empty"});
  expect_refused(item("i", std::string(4097, 't'), "x"), {"title: 4097 bytes, at most 4096"});
  expect_refused(item(std::string(513, 'i'), "", "x"), {"id: 513 bytes, at most 512"});
  expect_refused(item("i", "", std::string((2 << 20) + 1, 'x')),
                 {"text: 2097153 bytes, at most 2097152"});
  expect_refused(item("i", "", "no \xff utf-8"), {"'i'", "text: no valid UTF-8 at byte 3"});
  expect_refused(item("page#3", "", "x"), {"'page#3'", "id: ends in '#3'"});
  Item with_metadata = item("i", "", "x");
  with_metadata.set_metadata(R"({"a":{}})");
  expect_refused(with_metadata, {"'i'", "metadata.a: must be a text"});
  expect_refused(item("\xc3", "", "x"), {"document 2 of this call, id: no valid UTF-8 at byte 0"});
  // What stood before the bad one is there.
  EXPECT_EQ(info().documents(), 2u);
  EXPECT_EQ(upsert(std::vector<Item>(1001, encyclopedia()[0]), 1001).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);

  v1::SearchResponse response;
  EXPECT_THAT(search("", 1, response).error_message(), HasSubstr("query: is empty"));
  EXPECT_THAT(search("x", 0, response).error_message(), HasSubstr("top_k: 0, must be 1..1000"));
  EXPECT_THAT(search("x", 1001, response).error_message(), HasSubstr("top_k: 1001"));
  EXPECT_THAT(search(std::string(70000, 'x'), 1, response).error_message(),
              HasSubstr("query: 70000 bytes, at most 65536"));
  EXPECT_TRUE(search(std::string(60000, 'x'), 1, response).ok());
}

TEST_F(RetrievalApp, AsksForFewerDocumentsIfTheyDoNotFitIntoAMessage) {
  config_.chunk_tokens = 0;
  config_.chunk_overlap_tokens = 0;
  start();
  // With its tokens a document takes 4 MiB of the answer.
  std::string text;
  for (int i = 0; i < 1 << 20; ++i) text += "a ";
  std::vector<Item> items;
  for (int i = 0; i < 17; ++i) items.push_back(item(str_cat("d", i), "", text));
  const Upserted upserted = upsert(items, 1);
  ASSERT_TRUE(upserted.status.ok()) << upserted.status.error_message();

  v1::SearchResponse response;
  const grpc::Status too_many = search("a", 17, response);
  EXPECT_EQ(too_many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(too_many.error_message(), HasSubstr("top_k: the documents make an answer of "));
  EXPECT_TRUE(search("a", 5, response).ok());
  v1::GetDocumentsResponse got;
  EXPECT_THAT(get(std::vector<std::string>(17, "d0"), got).error_message(),
              HasSubstr("ids: the documents make an answer of "));
}

// Every search sees each document once, in its old version or its new one.
TEST_F(RetrievalApp, SearchesWhileDocumentsAreReplaced) {
  start();
  const auto version = [](int round) {
    std::vector<Item> items;
    for (int i = 0; i < 24; ++i) {
      items.push_back(item(str_cat("d", i), "Lighthouse", str_cat("Keeper ", i, ", year ", round)));
    }
    return items;
  };
  ASSERT_TRUE(upsert(version(0)).status.ok());
  std::atomic<bool> done = false;
  std::vector<std::thread> searchers;
  for (int t = 0; t < 3; ++t) {
    searchers.emplace_back([&] {
      while (!done) {
        const std::vector<std::string> ids = found("keeper of the lighthouse", 100);
        EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 24u);
        EXPECT_THAT(ids, SizeIs(24));
      }
    });
  }
  for (int round = 1; round <= 4; ++round) EXPECT_TRUE(upsert(version(round)).status.ok());
  done = true;
  for (std::thread& searcher : searchers) searcher.join();
}

TEST_F(RetrievalApp, CutsLongDocumentsAndAnswersWithTheirPieces) {
  config_.chunk_tokens = 64;
  config_.chunk_overlap_tokens = 16;
  start();
  std::string text;
  for (const Item& short_one : encyclopedia()) text += short_one.text() + " ";
  Item whole = item("encyclopedia", "Encyclopedia", text);
  whole.set_metadata(R"({"year": 1751})");
  const Upserted upserted = upsert({whole, encyclopedia()[0]});
  EXPECT_EQ(upserted.accepted, 2u);
  EXPECT_GT(upserted.pieces, 3u);
  EXPECT_EQ(info().documents(), 2u);
  v1::GetDocumentsResponse got;
  ASSERT_TRUE(get({"encyclopedia"}, got).ok());
  ASSERT_EQ(static_cast<uint64_t>(got.documents_size()), upserted.pieces - 1);
  EXPECT_EQ(got.cache_scope(), types::v1::CACHE_SCOPE_TENANT);
  for (int i = 0; i < got.documents_size(); ++i) {
    const types::v1::Document& piece = got.documents(i);
    EXPECT_EQ(piece.id(), str_cat("encyclopedia#", i + 1));
    EXPECT_EQ(piece.source_id(), "encyclopedia");
    EXPECT_EQ(piece.title(), "Encyclopedia");
    EXPECT_LE(piece.segment_tokens_size(), 64);
    ASSERT_EQ(piece.metadata_size(), 1);
    EXPECT_EQ(piece.metadata(0).values(0).number(), 1751);
  }
  v1::SearchResponse response;
  // What was embedded of a piece is nearest to itself.
  ASSERT_TRUE(search("Encyclopedia\n" + got.documents(1).text(), 1, response).ok());
  EXPECT_EQ(response.documents(0).id(), "encyclopedia#2");
  EXPECT_EQ(response.documents(0).source_id(), "encyclopedia");
}

TEST_F(RetrievalApp, SearchesOneCorpusByFilterAndByEmbedding) {
  start();
  grpc::ClientContext create_context;
  v1::CreateCorpusRequest create;
  create.mutable_corpus()->set_name("sky");
  create.mutable_corpus()->set_cache_scope(types::v1::CACHE_SCOPE_SHARED);
  v1::CreateCorpusResponse created;
  ASSERT_TRUE(stub_->CreateCorpus(&create_context, create, &created).ok());
  EXPECT_EQ(created.corpus().chunk_tokens(), 1024u);
  Item saturn = encyclopedia()[3], comet = encyclopedia()[5];
  saturn.set_metadata(R"({"kind": "planet"})");
  comet.set_metadata(R"({"kind": ["ice", "dust"]})");
  ASSERT_TRUE(upsert({saturn, comet}, 4, "sky").status.ok());
  ASSERT_TRUE(upsert({encyclopedia()[0]}).status.ok());

  v1::SearchRequest request;
  request.set_query("insects");
  request.set_top_k(9);
  request.set_corpus("sky");
  v1::SearchResponse response;
  ASSERT_TRUE(search(request, response).ok());
  EXPECT_THAT(response.documents(), SizeIs(2));
  EXPECT_EQ(response.cache_scope(), types::v1::CACHE_SCOPE_SHARED);
  types::v1::Filter::Condition& condition = *request.mutable_filter()->add_conditions();
  condition.set_field("kind");
  condition.set_op(types::v1::Filter::OPERATOR_IN);
  condition.add_values()->set_text("dust");
  ASSERT_TRUE(search(request, response).ok());
  ASSERT_THAT(response.documents(), SizeIs(1));
  EXPECT_EQ(response.documents(0).id(), "comet");
  condition.clear_values();
  EXPECT_THAT(search(request, response).error_message(),
              HasSubstr("filter.conditions[0].values: 0, must be"));
  request.clear_filter();

  // The embedding of a question finds what the question finds.
  grpc::ClientContext embed_context;
  v1::EmbedRequest texts;
  texts.add_texts("Which planet has rings?");
  texts.add_texts("bees");
  v1::EmbedResponse embedded;
  ASSERT_TRUE(stub_->Embed(&embed_context, texts, &embedded).ok());
  ASSERT_EQ(embedded.embeddings_size(), 2);
  EXPECT_GT(embedded.tokens(), 5u);
  v1::SearchResponse by_question, by_embedding;
  request.set_query(texts.texts(0));
  ASSERT_TRUE(search(request, by_question).ok());
  request.clear_query();
  for (const float value : embedded.embeddings(0).values()) request.add_embedding(value * 7);
  ASSERT_TRUE(search(request, by_embedding).ok());
  ASSERT_EQ(by_embedding.documents_size(), by_question.documents_size());
  for (int i = 0; i < by_question.documents_size(); ++i) {
    EXPECT_EQ(by_embedding.documents(i).id(), by_question.documents(i).id());
    EXPECT_NEAR(by_embedding.documents(i).score(), by_question.documents(i).score(), 1e-5);
  }
  const auto refused = [&] { return search(request, response).error_message(); };
  request.set_query("x");
  EXPECT_THAT(refused(), HasSubstr("query, embedding: both"));
  request.clear_query();
  request.set_embedding(3, std::numeric_limits<float>::infinity());
  EXPECT_THAT(refused(), HasSubstr("embedding[3]: is not a finite number"));
  for (float& value : *request.mutable_embedding()) value = 0;
  EXPECT_THAT(refused(), HasSubstr("embedding: is all zeros"));
  request.add_embedding(1);
  EXPECT_THAT(refused(), HasSubstr("embedding: 385 numbers, those of the index have 384"));

  request.Clear();
  request.set_query("x");
  request.set_top_k(1);
  request.set_corpus("sea");
  const grpc::Status unknown = search(request, response);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("'sea'"));
  EXPECT_EQ(upsert({saturn}, 1, "sea").status.error_code(), grpc::StatusCode::NOT_FOUND);

  grpc::ClientContext list_context;
  v1::ListCorporaResponse listed;
  ASSERT_TRUE(stub_->ListCorpora(&list_context, {}, &listed).ok());
  ASSERT_THAT(listed.corpora(), SizeIs(2));
  EXPECT_EQ(listed.corpora(0).name(), "default");
  EXPECT_EQ(listed.corpora(1).documents(), 2u);
  EXPECT_EQ(listed.corpora(1).index_kind(), "exact");
  grpc::ClientContext delete_context;
  v1::DeleteCorpusRequest remove;
  remove.set_name("sky");
  v1::DeleteCorpusResponse removed;
  ASSERT_TRUE(stub_->DeleteCorpus(&delete_context, remove, &removed).ok());
  EXPECT_EQ(removed.deleted_documents(), 2u);
  EXPECT_EQ(info().documents(), 1u);
}

TEST_F(RetrievalApp, EmbedsAsManyTextsAsTheGatewayTakesAndNamesWhatItCannotEmbed) {
  start();
  v1::EmbedResponse response;
  const auto embed = [&](const std::vector<std::string>& texts) {
    grpc::ClientContext context;
    v1::EmbedRequest request;
    request.mutable_texts()->Add(texts.begin(), texts.end());
    return stub_->Embed(&context, request, &response).error_message();
  };
  EXPECT_EQ(embed(std::vector<std::string>(2048, "a")), "");
  EXPECT_EQ(response.embeddings_size(), 2048);
  EXPECT_THAT(embed(std::vector<std::string>(2049, "a")), HasSubstr("texts: 2049, must be"));
  EXPECT_THAT(embed({}), HasSubstr("texts: 0, must be 1..2048"));
  EXPECT_THAT(embed({"a", ""}), HasSubstr("texts[1]: is empty"));
  EXPECT_THAT(embed({std::string(65537, 'x')}), HasSubstr("texts[0]: 65537 bytes, at most 65536"));
}

TEST_F(RetrievalApp, SearchesWhileAllPlacesForUploadsAreTaken) {
  start();
  v1::UpsertDocumentsRequest request;
  *request.add_items() = encyclopedia()[0];
  v1::UpsertDocumentsResponse response;
  std::deque<grpc::ClientContext> contexts(64);
  std::vector<decltype(stub_->UpsertDocuments(&contexts[0]))> silent;
  for (grpc::ClientContext& context : contexts) {
    silent.push_back(stub_->UpsertDocuments(&context));
    ASSERT_TRUE(silent.back()->Write(request));
    ASSERT_TRUE(silent.back()->Read(&response));
  }
  const grpc::Status refused = upsert({encyclopedia()[1]}).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("too many uploads at once: at most 64; try"));
  EXPECT_THAT(found("flowers", 9), ElementsAre("bees"));
  for (const auto& stream : silent) {
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
}

TEST_F(RetrievalApp, StopsACancelledIngest) {
  start();
  std::string text;
  for (int i = 0; i < 250; ++i) text += "harbour ";
  grpc::ClientContext context;
  const auto stream = stub_->UpsertDocuments(&context);
  v1::UpsertDocumentsRequest request;
  for (int i = 0; i < 400; ++i) *request.add_items() = item(str_cat("d", i), "", text);
  ASSERT_TRUE(stream->Write(request));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // Returns only after the work has ended.
  app_.reset();
  start();
  EXPECT_LT(info().documents(), 400u);
}

TEST_F(RetrievalApp, SaysWhatKeepsItFromStarting) {
  start();
  EXPECT_THAT(start_error(), HasSubstr("in use by another process"));
  app_.reset();

  Config config = config_;
  config_.model = folder_ + "/none.gguf";
  EXPECT_THAT(start_error(), HasSubstr("none.gguf"));
  config_ = config;
  config_.embedding_model = folder_ + "/no-model";
  EXPECT_THAT(start_error(), HasSubstr("no-model"));
  config_ = config;
  std::ofstream(folder_ + "/file") << "x";
  config_.state_dir = folder_ + "/file";
  EXPECT_THAT(start_error(), HasSubstr(folder_ + "/file"));
  config_ = config;
  std::ofstream(folder_ + "/retrieval/documents.db", std::ios::trunc) << std::string(9000, 'x');
  EXPECT_THAT(start_error(), HasSubstr("documents.db"));
}

}  // namespace
}  // namespace ragcache::retrieval
