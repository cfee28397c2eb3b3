#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>

#include "common/rpc/status.h"
#include "common/strings.h"
#include "ragcache/gateway/v1/gateway.grpc.pb.h"
#include "tests/fakes/gateway_fixture.h"
#include "tests/fakes/raw_client.h"

namespace ragcache::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace cpb = controller::v1;
namespace rpb = retrieval::v1;
using Item = rpb::UpsertDocumentsRequest::Item;

constexpr std::chrono::seconds kPatience{10};

class FrontTest : public GatewayTest {
 protected:
  void start(Config config = {}) {
    GatewayTest::start(std::move(config));
    channel_ = grpc::CreateChannel(app_->grpc_address(), grpc::InsecureChannelCredentials());
    stub_ = v1::RagService::NewStub(channel_);
  }

  static v1::ChatRequest chat_request() {
    v1::ChatRequest request;
    request.set_model("ragcache");
    cpb::Message& message = *request.add_messages();
    message.set_role(cpb::ROLE_USER);
    message.set_content("why?");
    return request;
  }

  struct Answered {
    std::vector<cpb::AnswerResponse> responses;
    absl::Status status;
  };
  template <typename Request>
  Answered ask(std::unique_ptr<grpc::ClientReader<cpb::AnswerResponse>> (
                   v1::RagService::Stub::*method)(grpc::ClientContext*, const Request&),
               const Request& request, grpc::ClientContext* given = nullptr) {
    grpc::ClientContext own;
    auto reader = (stub_.get()->*method)(given == nullptr ? &own : given, request);
    Answered answered;
    cpb::AnswerResponse response;
    while (reader->Read(&response)) answered.responses.push_back(response);
    answered.status = from_grpc_status(reader->Finish());
    return answered;
  }
  Answered chat(const v1::ChatRequest& request, grpc::ClientContext* context = nullptr) {
    return ask(&v1::RagService::Stub::Chat, request, context);
  }

  template <typename Request, typename Response>
  absl::Status call(grpc::Status (v1::RagService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response, const std::string& key = "") {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    return from_grpc_status((stub_.get()->*method)(&context, request, response));
  }

  static Item item(const std::string& id, const std::string& text = "some text") {
    Item item;
    item.set_id(id);
    item.set_text(text);
    return item;
  }

  // Sends one message after the other, each when the one before is acknowledged.
  absl::Status upsert(const std::vector<rpb::UpsertDocumentsRequest>& messages,
                      rpb::UpsertDocumentsResponse& last) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto stream = stub_->UpsertDocuments(&context);
    bool open = true;
    for (const auto& message : messages) {
      open = open && stream->Write(message) && stream->Read(&last);
    }
    if (open) stream->WritesDone();
    while (stream->Read(&last)) {
    }
    return from_grpc_status(stream->Finish());
  }

  // What the standard health service says: 1 is SERVING.
  int health() {
    grpc::GenericStub generic(channel_);
    grpc::ClientContext context;
    // HealthCheckRequest{service: ""}, in bytes: a generic stub sends no empty message.
    const grpc::Slice question(std::string("\x0a\0", 2));
    grpc::ByteBuffer request(&question, 1), response;
    std::promise<grpc::Status> done;
    generic.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                      [&](grpc::Status status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<grpc::Slice> slices;
    response.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes.size() == 2 && bytes[0] == 8 ? bytes[1] : -1;
  }
  bool becomes(int wanted) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      if (health() == wanted) return true;
    }
    return false;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RagService::Stub> stub_;
};

TEST_F(FrontTest, StreamsAnAnswer) {
  start();
  controller_.script(answer());
  v1::ChatRequest request = chat_request();
  request.mutable_generation()->set_max_tokens(17);
  request.mutable_generation()->set_temperature(0);
  request.mutable_generation()->add_stop("x");
  request.mutable_rag()->set_top_k(3);
  request.mutable_rag()->set_corpus("wiki");
  const Answered answered = chat(request);
  ASSERT_TRUE(answered.status.ok()) << answered.status;
  ASSERT_EQ(answered.responses.size(), 4u);
  EXPECT_EQ(answered.responses[0].retrieved().documents_size(), 2);
  EXPECT_EQ(answered.responses[1].delta().text(), "Bec");
  EXPECT_EQ(answered.responses[3].completed().cached_tokens(), 64u);
  const cpb::AnswerRequest got = controller_.last_request();
  EXPECT_EQ(got.max_tokens(), 17u);
  EXPECT_EQ(got.sampling().temperature(), 0);
  EXPECT_FLOAT_EQ(got.sampling().top_p(), 1);
  EXPECT_THAT(got.stop(), ElementsAre("x"));
  EXPECT_TRUE(got.retrieval().enabled());
  EXPECT_EQ(got.retrieval().top_k(), 3u);
  EXPECT_EQ(got.retrieval().corpus(), "wiki");
  EXPECT_EQ(got.tenant(), "default");
}

TEST_F(FrontTest, ObservesTheTimesOfAnswers) {
  start();
  controller_.script(answer());
  ASSERT_TRUE(chat(chat_request()).status.ok());
  controller_.script({retrieved()}, {grpc::StatusCode::UNAVAILABLE, "worker lost"});
  ASSERT_FALSE(chat(chat_request()).status.ok());
  const std::string text = final_metrics();
  for (const char* name :
       {"ragcache_time_to_first_token_seconds", "ragcache_time_per_output_token_seconds",
        "ragcache_e2e_request_latency_seconds"}) {
    EXPECT_THAT(text, HasSubstr(str_cat(name, "_count{stream=\"true\"} 1")));
  }
}

TEST_F(FrontTest, CompletesARawPrompt) {
  start();
  controller_.script({delta("x"), completed()});
  v1::CompleteRequest request;
  request.set_model("fake-model");
  request.mutable_prompt()->add_segments()->set_text("one");
  request.mutable_prompt()->mutable_tail()->mutable_tokens()->add_ids(7);
  ASSERT_TRUE(ask(&v1::RagService::Stub::Complete, request).status.ok());
  const cpb::AnswerRequest got = controller_.last_request();
  EXPECT_EQ(got.raw_prompt().segments(0).text(), "one");
  EXPECT_THAT(got.raw_prompt().tail().tokens().ids(), ElementsAre(7));
  request.mutable_prompt()->clear_tail();
  EXPECT_EQ(ask(&v1::RagService::Stub::Complete, request).status.message(),
            "prompt: must be 1 to 4194304 bytes long, not 0");
}

TEST_F(FrontTest, NamesFieldAndBoundOfABadRequest) {
  start();
  const std::pair<std::function<void(v1::ChatRequest&)>, const char*> cases[] = {
      {[](auto& r) { r.clear_model(); }, "model: must be 1 to 256 bytes long, not 0"},
      {[](auto& r) { r.clear_messages(); }, "messages: must hold 1 to 1024 messages, not 0"},
      {[](auto& r) { r.mutable_messages(0)->clear_role(); }, "messages[0].role: must be one of"},
      {[](auto& r) { r.mutable_messages(0)->set_role(static_cast<cpb::Role>(9)); },
       "messages[0].role: must be one of"},
      {[](auto& r) { r.mutable_generation()->set_temperature(std::nan("")); },
       "temperature: must be 0 to 2, not nan"},
      {[](auto& r) { r.mutable_generation()->set_presence_penalty(INFINITY); },
       "presence_penalty: must be -2 to 2, not inf"},
      {[](auto& r) { r.mutable_generation()->set_top_p(0); }, "top_p: must be above 0 to 1, not 0"},
      {[](auto& r) { r.mutable_generation()->set_max_tokens(0); },
       "max_tokens: must be 1 to 1048576, not 0"},
      {[](auto& r) { r.mutable_generation()->set_max_tokens(5000); },
       "max_tokens: must be 1 to 4096, the model's context, not 5000"},
      {[](auto& r) { r.mutable_generation()->set_n(1000); }, "n: must be 1 to 16, not 1000"},
      {[](auto& r) { r.mutable_generation()->set_top_logprobs(3); },
       "top_logprobs: is only allowed"},
      {[](auto& r) { r.mutable_generation()->add_logit_bias()->set_bias(NAN); },
       "logit_bias.0: must be -100 to 100, not nan"},
      {[](auto& r) { r.mutable_rag()->set_top_k(101); }, "rag.top_k: must be 1 to 100, not 101"},
      {[](auto& r) { r.mutable_rag()->set_corpus("A"); }, "rag.corpus: must be 1 to 64 of a-z"},
      {[](auto& r) { r.mutable_rag()->mutable_filter()->add_conditions()->set_field("a"); },
       "rag.filter.a: must have 1 to 256 values, not 0"},
      {[](auto& r) { r.mutable_rag()->add_documents(""); },
       "rag.documents[0]: must be 1 to 256 bytes long, not 0"}};
  for (const auto& [change, message] : cases) {
    v1::ChatRequest request = chat_request();
    change(request);
    const absl::Status status = chat(request).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(message));
  }
  v1::ChatRequest unknown = chat_request();
  unknown.set_model("gpt-4o");
  EXPECT_EQ(chat(unknown).status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(controller_.requests().empty());
}

TEST_F(FrontTest, RefusesAMessageThatIsTooLong) {
  start({.limits = {.max_body_bytes = 1 << 20}});
  v1::ChatRequest request = chat_request();
  request.mutable_messages(0)->set_content(std::string(2 << 20, 'x'));
  EXPECT_EQ(chat(request).status.code(), absl::StatusCode::kResourceExhausted);
  controller_.script(answer());
  EXPECT_TRUE(chat(chat_request()).status.ok());
}

TEST_F(FrontTest, ObeysDeadlinesAndCancels) {
  start();
  grpc::ClientContext soon;
  soon.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  EXPECT_EQ(chat(chat_request(), &soon).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(controller_.next_call()->wait_cancelled());

  grpc::ClientContext context;
  auto reader = stub_->Chat(&context, chat_request());
  const auto call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  call->send(delta("x"));
  cpb::AnswerResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_TRUE(call->wait_cancelled());
  reader->Finish();
}

TEST_F(FrontTest, HoldsTheServiceBackWhileTheClientDoesNotRead) {
  start();
  std::vector<cpb::AnswerResponse> flood(1000, delta(std::string(64 << 10, 'x')));
  controller_.script(std::move(flood));
  const Answered answered = chat(chat_request());
  EXPECT_TRUE(answered.status.ok());
  EXPECT_EQ(answered.responses.size(), 1000u);
}

TEST_F(FrontTest, EndsTheAnswerOfAClientThatDoesNotRead) {
  start({.limits = {.write_timeout_ms = 100}});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  auto reader = stub_->Chat(&context, chat_request());
  const auto call = controller_.next_call();
  ASSERT_NE(call, nullptr);
  for (int i = 0; i < 400; ++i) call->send(delta(std::string(64 << 10, 'x')));
  EXPECT_TRUE(call->wait_cancelled());
  cpb::AnswerResponse response;
  while (reader->Read(&response)) {
  }
  const absl::Status status = from_grpc_status(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), testing::EndsWith("for 100 ms (write_timeout_ms)"));
  EXPECT_THAT(final_metrics(),
              HasSubstr("ragcache_grpc_calls_total{code=\"DEADLINE_EXCEEDED\",method=\"Chat\"} 1"));
}

TEST_F(FrontTest, CarriesIdsAndTenants) {
  const std::string keys =
      (std::filesystem::temp_directory_path() / str_cat("front-keys-", ::getpid())).string();
  std::ofstream(keys) << "acme:key-of-acme\n";
  start({.admin_key = "the-admin-key", .api_keys_file = keys});
  std::filesystem::remove(keys);
  controller_.script(answer());
  EXPECT_EQ(chat(chat_request()).status.code(), absl::StatusCode::kUnauthenticated);
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer key-of-acme");
  context.AddMetadata("x-request-id", "mine");
  context.AddMetadata("traceparent", trace);
  ASSERT_TRUE(chat(chat_request(), &context).status.ok());
  EXPECT_EQ(controller_.last_request().tenant(), "acme");
  EXPECT_EQ(controller_.last_request().request_id(), "mine");
  EXPECT_EQ(controller_.last_metadata("traceparent"), trace);
  const auto& given = context.GetServerInitialMetadata();
  ASSERT_EQ(given.count("x-request-id"), 1u);
  EXPECT_EQ(given.find("x-request-id")->second, "mine");

  rpb::ListDocumentsResponse page;
  EXPECT_TRUE(absl::IsUnauthenticated(
      call(&v1::RagService::Stub::ListDocuments, rpb::ListDocumentsRequest(), &page)));
  EXPECT_TRUE(
      call(&v1::RagService::Stub::ListDocuments, rpb::ListDocumentsRequest(), &page, "key-of-acme")
          .ok());
  v1::GetCacheStatsResponse stats;
  EXPECT_TRUE(absl::IsUnauthenticated(call(&v1::RagService::Stub::GetCacheStats,
                                           v1::GetCacheStatsRequest(), &stats, "key-of-acme")));
  EXPECT_TRUE(call(&v1::RagService::Stub::GetCacheStats, v1::GetCacheStatsRequest(), &stats,
                   "the-admin-key")
                  .ok());
}

TEST_F(FrontTest, LogsCallsWithTheirIds) {
  testing::internal::CaptureStderr();
  start();
  controller_.script(answer());
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine");
  EXPECT_TRUE(chat(chat_request(), &context).status.ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("\"level\":\"info\",\"message\":\"call\",\"request_id\":\"mine\""));
}

TEST_F(FrontTest, KeepsAndFindsDocuments) {
  start();
  rpb::UpsertDocumentsRequest first, second;
  first.set_corpus("default");
  *first.add_items() = item("a", "first");
  *first.add_items() = item("a", "second");
  *second.add_items() = item("b");
  second.mutable_items(0)->set_metadata(R"({"lang": "en"})");
  rpb::UpsertDocumentsResponse last;
  ASSERT_TRUE(upsert({first, second}, last).ok());
  EXPECT_EQ(last.accepted(), 3u);

  rpb::GetDocumentsRequest get;
  get.add_ids("b");
  get.add_ids("a");
  rpb::GetDocumentsResponse got;
  ASSERT_TRUE(call(&v1::RagService::Stub::GetDocuments, get, &got).ok());
  EXPECT_EQ(got.documents(0).metadata(0).values(0).text(), "en");
  EXPECT_EQ(got.documents(1).text(), "second");

  rpb::ListDocumentsResponse page;
  ASSERT_TRUE(call(&v1::RagService::Stub::ListDocuments, rpb::ListDocumentsRequest(), &page).ok());
  EXPECT_EQ(page.total(), 2u);

  grpc::ClientContext context;
  rpb::SearchRequest search;
  search.set_query("x");
  auto stages = stub_->Search(&context, search);
  rpb::SearchResponse stage;
  while (stages->Read(&stage)) {
  }
  EXPECT_TRUE(stages->Finish().ok());
  EXPECT_TRUE(stage.final());
  ASSERT_EQ(stage.documents_size(), 2);
  EXPECT_TRUE(stage.documents(0).segment_tokens().empty());
  EXPECT_EQ(retrieval_.last_search().top_k(), 5u);

  rpb::DeleteDocumentsRequest remove;
  remove.add_ids("a");
  rpb::DeleteDocumentsResponse removed;
  ASSERT_TRUE(call(&v1::RagService::Stub::DeleteDocuments, remove, &removed).ok());
  EXPECT_EQ(removed.deleted(), 1u);
}

TEST_F(FrontTest, KeepsWhatCameBeforeABadDocument) {
  start();
  const std::pair<Item, const char*> cases[] = {
      {item(""), "document 2 of this call: id: must be 1 to 256 bytes long, not 0"},
      {item("x", "\xff"), "document 2 of this call: text: must be UTF-8"},
      {item("x", std::string(2 << 20, 'x')), "document 2 of this call: text: must be 1 to 1048576"},
      {[] {
         Item bad = item("x");
         bad.set_metadata("{");
         return bad;
       }(),
       "document 2 of this call: metadata: "}};
  for (const auto& [bad, message] : cases) {
    rpb::UpsertDocumentsRequest first, second;
    *first.add_items() = item("a");
    *second.add_items() = item("b");
    *second.add_items() = bad;
    *second.add_items() = item("never");
    rpb::UpsertDocumentsResponse last;
    const absl::Status status = upsert({first, second}, last);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(message));
    EXPECT_EQ(last.accepted(), 2u);
  }
  EXPECT_EQ(retrieval_.stored(), 2u);
}

TEST_F(FrontTest, EndsASilentUpload) {
  start({.limits = {.body_timeout_ms = 300}});
  for (const bool sends_one : {false, true}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto stream = stub_->UpsertDocuments(&context);
    rpb::UpsertDocumentsRequest message;
    *message.add_items() = item("a");
    rpb::UpsertDocumentsResponse last;
    if (sends_one) {
      EXPECT_TRUE(stream->Write(message));
      EXPECT_TRUE(stream->Read(&last));
    }
    EXPECT_FALSE(stream->Read(&last));
    const absl::Status status = from_grpc_status(stream->Finish());
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), testing::EndsWith("for 300 ms (body_timeout_ms)"));
  }
  EXPECT_TRUE(retrieval_.wait_upserts_ended(2));
  EXPECT_EQ(retrieval_.stored(), 1u);
}

// A client that waits for an acknowledgement is not silent.
TEST_F(FrontTest, LetsAnUploadWaitForRetrieval) {
  start({.limits = {.header_timeout_ms = 600, .body_timeout_ms = 300}});
  retrieval_.pause_upserts();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  auto stream = stub_->UpsertDocuments(&context);
  rpb::UpsertDocumentsRequest message;
  *message.add_items() = item("a");
  ASSERT_TRUE(stream->Write(message));
  // What times out after longer.
  fakes::RawClient other(app_->port());
  other.send("GET /livez HTT");
  EXPECT_THAT(other.read_answer(), HasSubstr("408"));
  retrieval_.resume_upserts();
  rpb::UpsertDocumentsResponse last;
  EXPECT_TRUE(stream->Read(&last));
  EXPECT_EQ(last.accepted(), 1u);
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&last));
  EXPECT_TRUE(stream->Finish().ok());
}

// The service ends the call while the client only waits.
TEST_F(FrontTest, TellsAtOnceWhatRetrievalRefuses) {
  start();
  retrieval_.fail_at("bad", {grpc::StatusCode::RESOURCE_EXHAUSTED, "disk is full"});
  rpb::UpsertDocumentsRequest message;
  *message.add_items() = item("bad");
  rpb::UpsertDocumentsResponse last;
  const absl::Status status = upsert({message}, last);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "disk is full");
}

TEST_F(FrontTest, MakesCorporaAndEmbeds) {
  start();
  rpb::CreateCorpusRequest create;
  create.mutable_corpus()->set_name("wiki");
  rpb::CreateCorpusResponse created;
  ASSERT_TRUE(call(&v1::RagService::Stub::CreateCorpus, create, &created).ok());
  create.mutable_corpus()->set_name("");
  EXPECT_EQ(call(&v1::RagService::Stub::CreateCorpus, create, &created).message(),
            "name: is required");
  rpb::ListCorporaResponse corpora;
  ASSERT_TRUE(call(&v1::RagService::Stub::ListCorpora, rpb::ListCorporaRequest(), &corpora).ok());
  EXPECT_EQ(corpora.corpora_size(), 2);
  rpb::DeleteCorpusRequest remove;
  remove.set_name("wiki");
  rpb::DeleteCorpusResponse removed;
  EXPECT_TRUE(call(&v1::RagService::Stub::DeleteCorpus, remove, &removed).ok());

  rpb::EmbedRequest texts;
  texts.add_texts("three");
  rpb::EmbedResponse embedded;
  ASSERT_TRUE(call(&v1::RagService::Stub::Embed, texts, &embedded).ok());
  EXPECT_EQ(embedded.embeddings(0).values(0), 5);
  texts.add_texts("");
  EXPECT_EQ(call(&v1::RagService::Stub::Embed, texts, &embedded).message(),
            "texts[1]: must be 1 to 65536 bytes long, not 0");
}

TEST_F(FrontTest, TellsOfItsModelAndState) {
  start();
  v1::ListModelsResponse models;
  ASSERT_TRUE(call(&v1::RagService::Stub::ListModels, v1::ListModelsRequest(), &models).ok());
  EXPECT_EQ(models.models(0).name(), "fake-model");
  EXPECT_EQ(models.models(0).context_tokens(), 4096u);
  cpb::GetStatusResponse status;
  status.set_ready(true);
  status.set_block_tokens(16);
  status.mutable_cache()->set_total_blocks(10);
  controller_.set_status(status);
  cpb::GetStatusResponse told;
  ASSERT_TRUE(call(&v1::RagService::Stub::GetStatus, cpb::GetStatusRequest(), &told).ok());
  EXPECT_TRUE(told.ready());
  EXPECT_FALSE(told.has_cache());
  v1::GetCacheStatsResponse stats;
  ASSERT_TRUE(call(&v1::RagService::Stub::GetCacheStats, v1::GetCacheStatsRequest(), &stats).ok());
  EXPECT_EQ(stats.cache().total_blocks(), 10u);
  EXPECT_EQ(stats.block_tokens(), 16u);
  cpb::ClearCacheResponse cleared;
  ASSERT_TRUE(call(&v1::RagService::Stub::ClearCache, cpb::ClearCacheRequest(), &cleared).ok());
  EXPECT_EQ(cleared.cleared_nodes(), 3u);
  EXPECT_THAT(final_metrics(),
              HasSubstr("ragcache_grpc_calls_total{code=\"OK\",method=\"ClearCache\"} 1"));
}

TEST_F(FrontTest, IsHealthyWhileTheControllerIsReady) {
  start();
  EXPECT_TRUE(becomes(1));
  controller_.fail_status({grpc::StatusCode::UNAVAILABLE, "gone"});
  EXPECT_TRUE(becomes(2));
  controller_.fail_status(grpc::Status::OK);
  EXPECT_TRUE(becomes(1));
}

}  // namespace
}  // namespace ragcache::gateway
