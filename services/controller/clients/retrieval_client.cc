#include "services/controller/clients/retrieval_client.h"

#include <mutex>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/strings.h"

namespace ragcache::controller {
namespace {

constexpr Duration kInfoTimeout = std::chrono::seconds(2);

// Who asks for an answer names `documents`, of which retrieval is asked as `ids`.
absl::Status by_our_names(const absl::Status& status) {
  constexpr std::string_view kTheirs = "ids", kOurs = "documents";
  const std::string message(status.message());
  if (!message.starts_with("ids[") && !message.starts_with("ids:")) return status;
  return {status.code(), str_cat(kOurs, message.substr(kTheirs.size()))};
}

}  // namespace

class RetrievalClient::Calls : public std::enable_shared_from_this<Calls> {
 public:
  explicit Calls(std::shared_ptr<grpc::Channel> channel)
      : stub_(retrieval::v1::RetrievalService::NewStub(std::move(channel))) {}

  void find(FindDocuments find) {
    if (find.document_ids.empty()) {
      search(std::move(find));
    } else {
      get(std::move(find));
    }
  }

  void cancel(const std::string& request_id) {
    std::lock_guard lock(mutex_);
    auto it = contexts_.find(request_id);
    if (it != contexts_.end()) it->second->TryCancel();
  }

  void get_info(std::function<void(absl::StatusOr<retrieval::v1::GetInfoResponse>)> done) {
    struct Call {
      grpc::ClientContext context;
      retrieval::v1::GetInfoRequest request;
      retrieval::v1::GetInfoResponse response;
    };
    auto call = std::make_shared<Call>();
    call->context.set_deadline(deadline_in(kInfoTimeout));
    stub_->async()->GetInfo(&call->context, &call->request, &call->response,
                            [call, done = std::move(done)](const grpc::Status& status) {
                              if (status.ok()) {
                                done(std::move(call->response));
                              } else {
                                done(from_grpc_status(status));
                              }
                            });
  }

 private:
  // The stages of one search; the last documents count.
  class Search : public grpc::ClientReadReactor<retrieval::v1::SearchResponse> {
   public:
    Search(std::shared_ptr<Calls> calls, FindDocuments find)
        : calls_(std::move(calls)), find_(std::move(find)) {
      request_.set_query(find_.query);
      request_.set_top_k(find_.top_k);
      request_.set_corpus(find_.corpus);
      *request_.mutable_filter() = find_.filter;
      context_->set_deadline(deadline_in(find_.deadline - steady_now()));
    }

    void start(std::shared_ptr<Search> self) {
      self_ = std::move(self);
      calls_->remember(find_.request_id, context_);
      calls_->stub_->async()->Search(context_.get(), &request_, this);
      StartRead(&response_);
      StartCall();
    }

    void OnReadDone(bool ok) override {
      if (!ok) return;
      final_ = response_.final();
      cache_scope_ = response_.cache_scope();
      documents_.assign(std::make_move_iterator(response_.mutable_documents()->begin()),
                        std::make_move_iterator(response_.mutable_documents()->end()));
      StartRead(&response_);
    }

    void OnDone(const grpc::Status& status) override {
      calls_->forget(find_.request_id);
      absl::Status result = from_grpc_status(status);
      if (result.ok() && !final_) result = absl::InternalError("the search ended without a result");
      find_.reply.send(DocumentsFound{std::move(result), std::move(documents_), cache_scope_});
      self_.reset();
    }

   private:
    const std::shared_ptr<Calls> calls_;
    const FindDocuments find_;
    const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
    std::shared_ptr<Search> self_;
    retrieval::v1::SearchRequest request_;
    retrieval::v1::SearchResponse response_;
    std::vector<types::v1::Document> documents_;
    types::v1::CacheScope cache_scope_ = types::v1::CACHE_SCOPE_UNSPECIFIED;
    bool final_ = false;
  };

  void search(FindDocuments find) {
    auto search = std::make_shared<Search>(shared_from_this(), std::move(find));
    search->start(search);
  }

  void get(FindDocuments find) {
    struct Call {
      std::shared_ptr<grpc::ClientContext> context = std::make_shared<grpc::ClientContext>();
      retrieval::v1::GetDocumentsRequest request;
      retrieval::v1::GetDocumentsResponse response;
    };
    auto call = std::make_shared<Call>();
    call->context->set_deadline(deadline_in(find.deadline - steady_now()));
    call->request.set_corpus(find.corpus);
    call->request.mutable_ids()->Add(find.document_ids.begin(), find.document_ids.end());
    remember(find.request_id, call->context);
    stub_->async()->GetDocuments(
        call->context.get(), &call->request, &call->response,
        [call, self = shared_from_this(), find = std::move(find)](const grpc::Status& status) {
          self->forget(find.request_id);
          find.reply.send(
              DocumentsFound{by_our_names(from_grpc_status(status)),
                             {call->response.documents().begin(), call->response.documents().end()},
                             call->response.cache_scope()});
        });
  }

  void remember(const std::string& request_id, std::shared_ptr<grpc::ClientContext> context) {
    std::lock_guard lock(mutex_);
    contexts_[request_id] = std::move(context);
  }

  void forget(const std::string& request_id) {
    std::lock_guard lock(mutex_);
    contexts_.erase(request_id);
  }

  const std::unique_ptr<retrieval::v1::RetrievalService::Stub> stub_;

  std::mutex mutex_;  // guards contexts_
  absl::flat_hash_map<std::string, std::shared_ptr<grpc::ClientContext>> contexts_;
};

RetrievalClient::RetrievalClient(std::shared_ptr<grpc::Channel> channel)
    : calls_(std::make_shared<Calls>(std::move(channel))) {}

RetrievalClient::~RetrievalClient() = default;

RetrievalAddress RetrievalClient::address() const {
  return RetrievalAddress::of_functions(
      [calls = calls_](FindDocuments find) { calls->find(std::move(find)); },
      [calls = calls_](CancelFind cancel) { calls->cancel(cancel.request_id); });
}

void RetrievalClient::get_info(
    std::function<void(absl::StatusOr<retrieval::v1::GetInfoResponse>)> done) const {
  calls_->get_info(std::move(done));
}

}  // namespace ragcache::controller
