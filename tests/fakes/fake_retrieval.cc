#include "tests/fakes/fake_retrieval.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/check.h"

namespace ragcache::fakes {
namespace {

namespace pb = retrieval::v1;

constexpr std::chrono::seconds kPatience{10};

class SearchCall : public grpc::ServerWriteReactor<pb::SearchResponse> {
 public:
  SearchCall(std::vector<pb::SearchResponse> stages, grpc::Status end)
      : stages_(std::move(stages)), end_(std::move(end)) {
    next();
  }
  void OnWriteDone(bool) override { next(); }
  void OnDone() override { delete this; }

 private:
  void next() {
    if (sent_ < stages_.size()) {
      StartWrite(&stages_[sent_++]);
    } else {
      Finish(end_);
    }
  }

  const std::vector<pb::SearchResponse> stages_;
  const grpc::Status end_;
  size_t sent_ = 0;
};

void add_value(const nlohmann::json& value, types::v1::MetadataField& field) {
  types::v1::Value& added = *field.add_values();
  if (value.is_string()) {
    added.set_text(value.get<std::string>());
  } else if (value.is_boolean()) {
    added.set_flag(value.get<bool>());
  } else {
    added.set_number(value.get<double>());
  }
}

void set_metadata(const std::string& text, types::v1::Document& document) {
  document.clear_metadata();
  if (text.empty()) return;
  const auto metadata = nlohmann::json::parse(text);
  for (const auto& [name, value] : metadata.items()) {
    types::v1::MetadataField& field = *document.add_metadata();
    field.set_name(name);
    if (!value.is_array()) add_value(value, field);
    if (value.is_array()) {
      for (const auto& one : value) add_value(one, field);
    }
  }
}

grpc::Status no_corpus(const std::string& name) {
  return {grpc::StatusCode::NOT_FOUND, "corpus " + name + " does not exist"};
}

}  // namespace

// Reads a batch, stores it, acknowledges it, and reads the next.
class FakeRetrieval::Upsert
    : public grpc::ServerBidiReactor<pb::UpsertDocumentsRequest, pb::UpsertDocumentsResponse> {
 public:
  explicit Upsert(FakeRetrieval& owner) : owner_(owner) {
    std::lock_guard lock(owner_.mutex_);
    ++owner_.upserts_begun_;
    read();
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(owner_.mutex_);
    if (!ok) return end(grpc::Status::OK);
    owner_.largest_batch_ =
        std::max(owner_.largest_batch_, static_cast<size_t>(request_.items_size()));
    if (corpus_ == nullptr) corpus_ = owner_.find_corpus(request_.corpus());
    if (corpus_ == nullptr) return end(no_corpus(request_.corpus()));
    for (const auto& item : request_.items()) {
      if (item.id() == owner_.fail_id_) return end(owner_.failure_);
      types::v1::Document& document = corpus_->documents[item.id()];
      document.set_id(item.id());
      document.set_title(item.title());
      document.set_text(item.text());
      document.set_content_digest(std::string(32, '\x01'));
      set_metadata(item.metadata(), document);
      document.clear_segment_tokens();
      for (unsigned char byte : item.text()) document.add_segment_tokens(byte);
      response_.set_accepted(response_.accepted() + 1);
      response_.set_tokens(response_.tokens() + item.text().size());
      response_.set_pieces(response_.pieces() + 1);
    }
    owner_.changed_.notify_all();
    StartWrite(&response_);
  }

  void OnWriteDone(bool) override {
    std::lock_guard lock(owner_.mutex_);
    read();
  }

  void OnCancel() override {
    std::lock_guard lock(owner_.mutex_);
    if (owner_.waiting_ == this) read_now();  // it fails, and that ends the call
  }

  void OnDone() override {
    {
      std::lock_guard lock(owner_.mutex_);
      ++owner_.upserts_ended_;
      owner_.changed_.notify_all();
    }
    delete this;
  }

  void read_now() {
    owner_.waiting_ = nullptr;
    StartRead(&request_);
  }

 private:
  void read() {
    if (owner_.paused_) {
      owner_.waiting_ = this;
    } else {
      StartRead(&request_);
    }
  }
  void end(const grpc::Status& status) { Finish(status); }

  FakeRetrieval& owner_;
  Corpus* corpus_ = nullptr;
  pb::UpsertDocumentsRequest request_;
  pb::UpsertDocumentsResponse response_;
};

FakeRetrieval::FakeRetrieval() {
  folder_ = (std::filesystem::temp_directory_path() / "ragcache-fake-XXXXXX").string();
  RAG_CHECK(mkdtemp(folder_.data()) != nullptr);
  corpora_["default"].settings.set_name("default");
  grpc::Service* services[] = {this};
  auto server = RpcServer::start("unix:" + folder_ + "/retrieval.sock", services);
  RAG_CHECK(server.ok());
  server_ = std::move(*server);
}

FakeRetrieval::~FakeRetrieval() {
  server_->stop(Duration(0));
  std::filesystem::remove_all(folder_);
}

void FakeRetrieval::pause_upserts() {
  std::lock_guard lock(mutex_);
  paused_ = true;
}

void FakeRetrieval::resume_upserts() {
  std::lock_guard lock(mutex_);
  paused_ = false;
  if (waiting_ != nullptr) waiting_->read_now();
}

void FakeRetrieval::fail_at(std::string id, grpc::Status failure) {
  std::lock_guard lock(mutex_);
  fail_id_ = std::move(id);
  failure_ = std::move(failure);
}

void FakeRetrieval::fail_searches(grpc::Status failure) {
  std::lock_guard lock(mutex_);
  search_failure_ = std::move(failure);
}

bool FakeRetrieval::wait_upserts_ended(size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [this, count] {
    return upserts_begun_ == count && upserts_ended_ == count;
  });
}

bool FakeRetrieval::wait_stored(size_t documents) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [this, documents] { return count() >= documents; });
}

size_t FakeRetrieval::largest_batch() {
  std::lock_guard lock(mutex_);
  return largest_batch_;
}

size_t FakeRetrieval::stored() {
  std::lock_guard lock(mutex_);
  return count();
}

pb::SearchRequest FakeRetrieval::last_search() {
  std::lock_guard lock(mutex_);
  return last_search_;
}

std::vector<int> FakeRetrieval::embed_batches() {
  std::lock_guard lock(mutex_);
  return embed_batches_;
}

FakeRetrieval::Corpus* FakeRetrieval::find_corpus(const std::string& name) {
  const auto found = corpora_.find(name.empty() ? "default" : name);
  return found == corpora_.end() ? nullptr : &found->second;
}

size_t FakeRetrieval::count() {
  size_t documents = 0;
  for (const auto& [name, corpus] : corpora_) documents += corpus.documents.size();
  return documents;
}

grpc::ServerWriteReactor<pb::SearchResponse>* FakeRetrieval::Search(
    grpc::CallbackServerContext*, const pb::SearchRequest* request) {
  std::lock_guard lock(mutex_);
  last_search_ = *request;
  if (!search_failure_.ok()) return new SearchCall({}, search_failure_);
  Corpus* corpus = find_corpus(request->corpus());
  if (corpus == nullptr) return new SearchCall({}, no_corpus(request->corpus()));
  std::vector<pb::SearchResponse> stages(2);
  for (const auto& [id, document] : corpus->documents) {
    if (stages[1].documents_size() == static_cast<int>(request->top_k())) break;
    types::v1::Document& found = *stages[1].add_documents();
    found = document;
    found.set_score(1.0f / static_cast<float>(stages[1].documents_size()));
  }
  stages[1].set_final(true);
  stages[1].set_embed_us(1500);
  stages[1].set_search_us(250);
  return new SearchCall(std::move(stages), grpc::Status::OK);
}

grpc::ServerBidiReactor<pb::UpsertDocumentsRequest, pb::UpsertDocumentsResponse>*
FakeRetrieval::UpsertDocuments(grpc::CallbackServerContext*) {
  return new Upsert(*this);
}

grpc::ServerUnaryReactor* FakeRetrieval::GetDocuments(grpc::CallbackServerContext* context,
                                                      const pb::GetDocumentsRequest* request,
                                                      pb::GetDocumentsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  Corpus* corpus = find_corpus(request->corpus());
  if (corpus == nullptr) {
    reactor->Finish(no_corpus(request->corpus()));
    return reactor;
  }
  for (const std::string& id : request->ids()) {
    const auto found = corpus->documents.find(id);
    if (found == corpus->documents.end()) {
      reactor->Finish({grpc::StatusCode::NOT_FOUND, "document " + id + " does not exist"});
      return reactor;
    }
    *response->add_documents() = found->second;
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::ListDocuments(grpc::CallbackServerContext* context,
                                                       const pb::ListDocumentsRequest* request,
                                                       pb::ListDocumentsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  Corpus* corpus = find_corpus(request->corpus());
  if (corpus == nullptr) {
    reactor->Finish(no_corpus(request->corpus()));
    return reactor;
  }
  for (auto next = corpus->documents.upper_bound(request->after_id());
       next != corpus->documents.end() &&
       response->documents_size() < static_cast<int>(request->limit());
       ++next) {
    *response->add_documents() = next->second;
  }
  response->set_total(corpus->documents.size());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::DeleteDocuments(grpc::CallbackServerContext* context,
                                                         const pb::DeleteDocumentsRequest* request,
                                                         pb::DeleteDocumentsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  Corpus* corpus = find_corpus(request->corpus());
  if (corpus == nullptr) {
    reactor->Finish(no_corpus(request->corpus()));
    return reactor;
  }
  for (const std::string& id : request->ids()) {
    response->set_deleted(response->deleted() + corpus->documents.erase(id));
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::CreateCorpus(grpc::CallbackServerContext* context,
                                                      const pb::CreateCorpusRequest* request,
                                                      pb::CreateCorpusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  const auto [corpus, added] = corpora_.try_emplace(request->corpus().name());
  if (added) corpus->second.settings = request->corpus();
  *response->mutable_corpus() = corpus->second.settings;
  const bool same = corpus->second.settings.cache_scope() == request->corpus().cache_scope();
  reactor->Finish(same ? grpc::Status::OK
                       : grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "has other settings"));
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::ListCorpora(grpc::CallbackServerContext* context,
                                                     const pb::ListCorporaRequest*,
                                                     pb::ListCorporaResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  for (const auto& [name, corpus] : corpora_) {
    pb::Corpus& listed = *response->add_corpora();
    listed = corpus.settings;
    listed.set_documents(corpus.documents.size());
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::DeleteCorpus(grpc::CallbackServerContext* context,
                                                      const pb::DeleteCorpusRequest* request,
                                                      pb::DeleteCorpusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  Corpus* corpus = find_corpus(request->name());
  if (corpus == nullptr) {
    reactor->Finish(no_corpus(request->name()));
    return reactor;
  }
  response->set_deleted_documents(corpus->documents.size());
  corpora_.erase(request->name());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::Embed(grpc::CallbackServerContext* context,
                                               const pb::EmbedRequest* request,
                                               pb::EmbedResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  embed_batches_.push_back(request->texts_size());
  for (const std::string& text : request->texts()) {
    auto& values = *response->add_embeddings()->mutable_values();
    for (float value : {static_cast<float>(text.size()), 0.1f, -0.5f, 0.0f}) values.Add(value);
    response->set_tokens(response->tokens() + text.size());
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::GetInfo(grpc::CallbackServerContext* context,
                                                 const pb::GetInfoRequest*,
                                                 pb::GetInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  response->set_embedding_model("fake-embedder");
  response->set_dimension(kDimension);
  response->set_ready(true);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ragcache::fakes
