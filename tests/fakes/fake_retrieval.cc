#include "tests/fakes/fake_retrieval.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
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

}  // namespace

// Reads a batch, stores it, acknowledges it, and reads the next.
class FakeRetrieval::Upsert
    : public grpc::ServerBidiReactor<pb::UpsertDocumentsRequest, pb::UpsertDocumentsResponse> {
 public:
  explicit Upsert(FakeRetrieval& owner) : owner_(owner) {
    std::lock_guard lock(owner_.mutex_);
    read();
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(owner_.mutex_);
    if (!ok) return end(grpc::Status::OK);
    owner_.largest_batch_ =
        std::max(owner_.largest_batch_, static_cast<size_t>(request_.items_size()));
    for (const auto& item : request_.items()) {
      if (item.id() == owner_.fail_id_) return end(owner_.failure_);
      types::v1::Document& document = owner_.documents_[item.id()];
      document.set_id(item.id());
      document.set_title(item.title());
      document.set_text(item.text());
      document.set_content_digest(std::string(32, '\x01'));
      response_.set_accepted(response_.accepted() + 1);
      response_.set_tokens(response_.tokens() + item.text().size());
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
    owner_.upsert_cancelled_ = true;
    owner_.changed_.notify_all();
    if (owner_.waiting_ == this) read_now();  // it fails, and that ends the call
  }

  void OnDone() override { delete this; }

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
  pb::UpsertDocumentsRequest request_;
  pb::UpsertDocumentsResponse response_;
};

FakeRetrieval::FakeRetrieval() {
  folder_ = (std::filesystem::temp_directory_path() / "ragcache-fake-XXXXXX").string();
  RAG_CHECK(mkdtemp(folder_.data()) != nullptr);
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

bool FakeRetrieval::wait_upsert_cancelled() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [this] { return upsert_cancelled_; });
}

bool FakeRetrieval::wait_stored(size_t documents) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience,
                           [this, documents] { return documents_.size() >= documents; });
}

size_t FakeRetrieval::largest_batch() {
  std::lock_guard lock(mutex_);
  return largest_batch_;
}

size_t FakeRetrieval::stored() {
  std::lock_guard lock(mutex_);
  return documents_.size();
}

grpc::ServerWriteReactor<pb::SearchResponse>* FakeRetrieval::Search(
    grpc::CallbackServerContext*, const pb::SearchRequest* request) {
  std::lock_guard lock(mutex_);
  if (!search_failure_.ok()) return new SearchCall({}, search_failure_);
  std::vector<pb::SearchResponse> stages(2);
  for (const auto& [id, document] : documents_) {
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
  for (const std::string& id : request->ids()) {
    const auto found = documents_.find(id);
    if (found == documents_.end()) {
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
  for (auto next = documents_.upper_bound(request->after_id());
       next != documents_.end() && response->documents_size() < static_cast<int>(request->limit());
       ++next) {
    *response->add_documents() = next->second;
  }
  response->set_total(documents_.size());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeRetrieval::DeleteDocuments(grpc::CallbackServerContext* context,
                                                         const pb::DeleteDocumentsRequest* request,
                                                         pb::DeleteDocumentsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::lock_guard lock(mutex_);
  for (const std::string& id : request->ids()) {
    response->set_deleted(response->deleted() + documents_.erase(id));
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ragcache::fakes
