#include "services/retrieval/service.h"

#include <boost/asio/post.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/search_call.h"
#include "services/retrieval/upsert_call.h"

namespace ragcache::retrieval {
namespace {

// Ingest calls that compute at the same time: one embeds while another writes.
constexpr int kWriteThreads = 2;

std::string bytes_text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

absl::StatusOr<std::vector<std::string>> checked_ids(
    const google::protobuf::RepeatedPtrField<std::string>& ids) {
  if (ids.size() > Limits::kIdsPerMessage) {
    return absl::InvalidArgumentError(
        str_cat("ids: ", ids.size(), " of them, at most ", Limits::kIdsPerMessage));
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

}  // namespace

CallSlot::CallSlot(Service& service) : service_(service), number_(++service.calls_) {}
CallSlot::~CallSlot() { --service_.calls_; }

absl::Status CallSlot::status() const {
  if (number_ <= Limits::kCalls) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      str_cat("too many calls at once: at most ", Limits::kCalls, "; try again later"));
}

void to_message(const DocumentRecord& record, float score, types::v1::Document& message) {
  message.set_id(record.id);
  message.set_source_id(record.source_id);
  message.set_title(record.title);
  message.set_text(record.text);
  message.set_score(score);
  message.set_content_digest(bytes_text(record.content_digest));
  message.mutable_segment_tokens()->Add(record.segment_tokens.begin(), record.segment_tokens.end());
  message.set_token_digest(bytes_text(record.token_digest));
}

Service::Service(Corpus& corpus, Embedder& embedder, Metrics& metrics, std::string embedding_model,
                 int search_threads)
    : corpus_(corpus),
      embedder_(embedder),
      metrics_(metrics),
      embedding_model_(std::move(embedding_model)),
      search_pool_(static_cast<size_t>(search_threads)),
      write_pool_(kWriteThreads) {
  metrics_.documents.Set(static_cast<double>(corpus_.store().document_count()));
}

Service::~Service() {
  search_pool_.join();
  write_pool_.join();
}

grpc::ServerWriteReactor<v1::SearchResponse>* Service::Search(grpc::CallbackServerContext*,
                                                              const v1::SearchRequest* request) {
  return new SearchCall(*this, *request);
}

grpc::ServerBidiReactor<v1::UpsertDocumentsRequest, v1::UpsertDocumentsResponse>*
Service::UpsertDocuments(grpc::CallbackServerContext*) {
  return new UpsertCall(*this);
}

template <typename Work>
grpc::ServerUnaryReactor* Service::run_unary(grpc::CallbackServerContext* context,
                                             boost::asio::thread_pool& pool, Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto slot = std::make_unique<CallSlot>(*this);
  if (!slot->status().ok()) {
    reactor->Finish(to_grpc_status(slot->status()));
    return reactor;
  }
  boost::asio::post(pool, [context, reactor, slot = std::move(slot), work = std::move(work)] {
    const absl::Status status =
        context->IsCancelled() ? absl::CancelledError("the caller has gone") : work();
    reactor->Finish(to_grpc_status(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* Service::GetDocuments(grpc::CallbackServerContext* context,
                                                const v1::GetDocumentsRequest* request,
                                                v1::GetDocumentsResponse* response) {
  return run_unary(context, search_pool_, [this, request, response]() -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const std::vector<std::string> ids, checked_ids(request->ids()));
    RAG_ASSIGN_OR_RETURN(const auto records, corpus_.store().find_by_id(corpus_.number(), ids));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (records[i].empty()) {
        return absl::NotFoundError(str_cat("ids[", i, "]: there is no document '", ids[i], "'"));
      }
      for (const DocumentRecord& piece : records[i]) {
        to_message(piece, 0, *response->add_documents());
      }
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::ListDocuments(grpc::CallbackServerContext* context,
                                                 const v1::ListDocumentsRequest* request,
                                                 v1::ListDocumentsResponse* response) {
  return run_unary(context, search_pool_, [this, request, response]() -> absl::Status {
    if (request->limit() > Limits::kListDocuments) {
      return absl::InvalidArgumentError(
          str_cat("limit: ", request->limit(), ", at most ", Limits::kListDocuments));
    }
    const uint32_t limit = request->limit() == 0 ? Limits::kListDocumentsDefault : request->limit();
    RAG_ASSIGN_OR_RETURN(const std::vector<DocumentSummary> documents,
                         corpus_.store().list(corpus_.number(), request->after_id(), limit));
    for (const DocumentSummary& document : documents) {
      types::v1::Document& message = *response->add_documents();
      message.set_id(document.id);
      message.set_title(document.title);
      message.set_content_digest(bytes_text(document.content_digest));
    }
    response->set_total(corpus_.store().document_count());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::DeleteDocuments(grpc::CallbackServerContext* context,
                                                   const v1::DeleteDocumentsRequest* request,
                                                   v1::DeleteDocumentsResponse* response) {
  return run_unary(context, write_pool_, [this, request, response]() -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const std::vector<std::string> ids, checked_ids(request->ids()));
    RAG_ASSIGN_OR_RETURN(const uint64_t deleted, corpus_.erase(ids));
    response->set_deleted(deleted);
    metrics_.documents.Set(static_cast<double>(corpus_.store().document_count()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::GetInfo(grpc::CallbackServerContext* context,
                                           const v1::GetInfoRequest*,
                                           v1::GetInfoResponse* response) {
  response->set_documents(corpus_.store().document_count());
  response->set_index_kind(std::string(corpus_.index_kind()));
  response->set_dimension(embedder_.dimension());
  response->set_embedding_model(embedding_model_);
  response->set_tokenizer_fingerprint(bytes_text(corpus_.tokenizer_fingerprint()));
  response->set_ready(true);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ragcache::retrieval
