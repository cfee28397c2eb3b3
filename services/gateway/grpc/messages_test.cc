#include "services/gateway/grpc/messages.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <future>

#include "common/rpc/status.h"
#include "common/strings.h"
#include "ragcache/gateway/v1/gateway.pb.h"
#include "tests/fakes/gateway_fixture.h"

namespace ragcache::gateway {
namespace {

using testing::HasSubstr;
namespace rpb = retrieval::v1;

// What no generated client would send.
class MessagesTest : public GatewayTest {
 protected:
  void start() {
    GatewayTest::start();
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(app_->grpc_address(), grpc::InsecureChannelCredentials()));
  }

  static std::string path_of(const std::string& method) {
    return "/ragcache.gateway.v1.RagService/" + method;
  }
  static Bytes bytes_of(const std::string& text) {
    const grpc::Slice slice(text);
    return Bytes(&slice, 1);
  }
  // The request with every BAD in it made no UTF-8.
  static std::string spoilt(const google::protobuf::Message& request) {
    std::string bytes = request.SerializeAsString();
    size_t at = bytes.find("BAD");
    EXPECT_NE(at, std::string::npos) << request.DebugString();
    for (; at != std::string::npos; at = bytes.find("BAD", at)) bytes.replace(at, 3, "B\xff\xfe");
    return bytes;
  }

  // Sends one message to any method, and what ends the call.
  absl::Status send(const std::string& method, const std::string& message) {
    grpc::ClientContext context;
    const Bytes request = bytes_of(message);
    Bytes response;
    std::promise<grpc::Status> end;
    stub_->UnaryCall(&context, path_of(method), {}, &request, &response,
                     [&](grpc::Status status) { end.set_value(std::move(status)); });
    return from_grpc_status(end.get_future().get());
  }

  std::unique_ptr<grpc::GenericStub> stub_;
};

// Writes messages, one when the one before is acknowledged, and closes.
class Upload : public grpc::ClientBidiReactor<Bytes, Bytes> {
 public:
  Upload(grpc::GenericStub& stub, const std::string& path, std::vector<Bytes> messages)
      : messages_(std::move(messages)) {
    stub.PrepareBidiStreamingCall(&context_, path, {}, this);
    write_next();
    StartRead(&response_);
    StartCall();
  }
  absl::Status end() { return from_grpc_status(end_.get_future().get()); }
  uint64_t accepted() const { return accepted_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const auto response = parse_message<rpb::UpsertDocumentsResponse>(response_);
    if (response.ok()) accepted_ = response->accepted();
    write_next();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override { end_.set_value(status); }

 private:
  void write_next() {
    if (next_ == messages_.size()) {
      StartWritesDone();
    } else {
      StartWrite(&messages_[next_]);
    }
    ++next_;
  }

  grpc::ClientContext context_;
  std::vector<Bytes> messages_;
  size_t next_ = 0;
  Bytes response_;
  uint64_t accepted_ = 0;
  std::promise<grpc::Status> end_;
};

TEST_F(MessagesTest, NameTheTextThatIsNotUtf8) {
  start();
  v1::ChatRequest content, stop, corpus, filter, model;
  content.add_messages()->set_content("good");
  content.add_messages()->set_content("it is BAD");
  stop.mutable_generation()->add_stop("a");
  stop.mutable_generation()->add_stop("BAD");
  corpus.mutable_rag()->set_corpus("BAD");
  filter.mutable_rag()->mutable_filter()->add_conditions()->add_values()->set_text("BAD");
  model.set_model("BAD");
  v1::CompleteRequest prompt;
  prompt.mutable_prompt()->add_segments()->set_text("good");
  prompt.mutable_prompt()->add_segments()->set_text("BAD");
  rpb::EmbedRequest embed;
  embed.add_texts("good");
  embed.add_texts("BAD");
  rpb::SearchRequest query, field;
  query.set_query("BAD");
  field.mutable_filter()->add_conditions()->set_field("BAD");
  rpb::GetDocumentsRequest get;
  get.add_ids("BAD");
  rpb::ListDocumentsRequest list;
  list.set_after_id("BAD");
  rpb::DeleteDocumentsRequest remove;
  remove.add_ids("good");
  remove.add_ids("BAD");
  rpb::CreateCorpusRequest create;
  create.mutable_corpus()->set_name("BAD");
  rpb::DeleteCorpusRequest drop;
  drop.set_name("BAD");
  v1::UpdateCachePathsRequest paths;
  paths.add_paths()->add_documents("good");
  paths.mutable_paths(0)->add_documents("BAD");
  rpb::UpsertDocumentsRequest upsert;
  upsert.set_corpus("BAD");

  const std::tuple<const char*, const google::protobuf::Message*, const char*> cases[] = {
      {"Chat", &content, "messages[1].content"},
      {"Chat", &stop, "generation.stop[1]"},
      {"Chat", &corpus, "rag.corpus"},
      {"Chat", &filter, "rag.filter.conditions[0].values[0].text"},
      {"Chat", &model, "model"},
      {"Complete", &prompt, "prompt.segments[1].text"},
      {"Embed", &embed, "texts[1]"},
      {"Search", &query, "query"},
      {"Search", &field, "filter.conditions[0].field"},
      {"GetDocuments", &get, "ids[0]"},
      {"ListDocuments", &list, "after_id"},
      {"DeleteDocuments", &remove, "ids[1]"},
      {"CreateCorpus", &create, "corpus.name"},
      {"DeleteCorpus", &drop, "name"},
      {"UpdateCachePaths", &paths, "paths[0].documents[1]"},
      {"UpsertDocuments", &upsert, "corpus"}};
  for (const auto& [method, request, field_path] : cases) {
    const absl::Status status = send(method, spoilt(*request));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << method;
    EXPECT_EQ(status.message(), str_cat(field_path, ": must be UTF-8")) << method;
  }
  EXPECT_TRUE(controller_.requests().empty());
}

TEST_F(MessagesTest, SayWhenTheyAreNoProtobuf) {
  start();
  const google::protobuf::ServiceDescriptor& service =
      *v1::ChatRequest::descriptor()->file()->FindServiceByName("RagService");
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& method = *service.method(i);
    const absl::Status status = send(method.name(), "\x0a\x7f short");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << method.name();
    EXPECT_EQ(status.message(),
              str_cat("the message is no ", method.input_type()->full_name(), " in protobuf"));
  }
  EXPECT_THAT(final_metrics(),
              HasSubstr("ragcache_grpc_calls_total{code=\"INVALID_ARGUMENT\",method=\"Chat\"} 1"));
}

// What a client that breaks off leaves is no empty request: the cache stays as it is.
TEST_F(MessagesTest, MustBeThere) {
  start();
  Upload nothing(*stub_, path_of("ClearCache"), {});
  EXPECT_EQ(nothing.end().message(), "the call has no message");
}

// What an upload has sent before is kept, and the call does not end as if all had come.
TEST_F(MessagesTest, EndAnUploadInWords) {
  start();
  rpb::UpsertDocumentsRequest good, bad;
  auto& item = *good.add_items();
  item.set_id("a");
  item.set_text("some text");
  *bad.add_items() = item;
  bad.set_corpus("BAD");
  Upload upload(*stub_, path_of("UpsertDocuments"),
                {to_bytes(good), bytes_of(spoilt(bad)), to_bytes(good)});
  const absl::Status status = upload.end();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "corpus: must be UTF-8");
  EXPECT_EQ(upload.accepted(), 1u);
  EXPECT_EQ(retrieval_.stored(), 1u);
}

}  // namespace
}  // namespace ragcache::gateway
