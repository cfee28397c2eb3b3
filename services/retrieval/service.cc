#include "services/retrieval/service.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/convert.h"
#include "services/retrieval/search_call.h"
#include "services/retrieval/upsert_call.h"

namespace ragcache::retrieval {
namespace {

// Ingest calls that compute at the same time: one embeds while another writes.
constexpr int kWriteThreads = 2;

// A search that its caller lets run longer ends so.
constexpr Duration kSearchTimeoutMax = std::chrono::seconds(30);

Duration timeout_of(const grpc::CallbackServerContext& context) {
  const TimePoint deadline = steady_deadline(context.deadline());
  if (deadline == TimePoint::max()) return kSearchTimeoutMax;
  return std::clamp<Duration>(deadline - steady_now(), Duration::zero(), kSearchTimeoutMax);
}

absl::StatusOr<std::vector<std::string>> checked_ids(
    const google::protobuf::RepeatedPtrField<std::string>& ids) {
  if (ids.size() > Limits::kIdsPerMessage) {
    return absl::InvalidArgumentError(
        str_cat("ids: ", ids.size(), " of them, at most ", Limits::kIdsPerMessage));
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

}  // namespace

CallSlot::CallSlot(CallPlaces& places) : places_(places), number_(++places.taken) {}
CallSlot::~CallSlot() { --places_.taken; }

absl::Status CallSlot::status() const {
  if (number_ <= places_.max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      str_cat("too many ", places_.kind, " at once: at most ", places_.max, "; try again later"));
}

Service::Service(Corpora& corpora, Embedder& embedder, Metrics& metrics,
                 std::string embedding_model, boost::asio::thread_pool& search_pool)
    : corpora_(corpora),
      embedder_(embedder),
      metrics_(metrics),
      embedding_model_(std::move(embedding_model)),
      search_pool_(search_pool),
      write_pool_(kWriteThreads) {
  count_documents();
}

void Service::count_documents() {
  metrics_.documents.Set(static_cast<double>(corpora_.store().document_count()));
}

Service::~Service() { write_pool_.join(); }

grpc::ServerWriteReactor<v1::SearchResponse>* Service::Search(grpc::CallbackServerContext* context,
                                                              const v1::SearchRequest* request) {
  return new SearchCall(*this, *request, timeout_of(*context));
}

grpc::ServerBidiReactor<v1::UpsertDocumentsRequest, v1::UpsertDocumentsResponse>*
Service::UpsertDocuments(grpc::CallbackServerContext*) {
  return new UpsertCall(*this);
}

grpc::ServerUnaryReactor* Service::run_unary(grpc::CallbackServerContext* context,
                                             boost::asio::thread_pool& pool,
                                             std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto slot = std::make_unique<CallSlot>(calls_);
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
    RAG_ASSIGN_OR_RETURN(const auto corpus, corpora_.find(request->corpus()));
    RAG_ASSIGN_OR_RETURN(const auto records, corpora_.store().find_by_id(corpus->number(), ids));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (records[i].empty()) {
        return absl::NotFoundError(str_cat("ids[", i, "]: there is no document '", ids[i], "'"));
      }
      for (const DocumentRecord& piece : records[i]) {
        RAG_RETURN_IF_ERROR(to_message(piece, 0, *response->add_documents()));
      }
    }
    response->set_cache_scope(to_message(corpus->settings().cache_scope));
    return check_length(*response, "ids");
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
    RAG_ASSIGN_OR_RETURN(const auto corpus, corpora_.find(request->corpus()));
    RAG_ASSIGN_OR_RETURN(const std::vector<DocumentSummary> documents,
                         corpora_.store().list(corpus->number(), request->after_id(), limit));
    for (const DocumentSummary& document : documents) {
      RAG_RETURN_IF_ERROR(to_message(document, *response->add_documents()));
    }
    response->set_total(corpus->record().documents);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::DeleteDocuments(grpc::CallbackServerContext* context,
                                                   const v1::DeleteDocumentsRequest* request,
                                                   v1::DeleteDocumentsResponse* response) {
  return run_unary(context, write_pool_, [this, request, response]() -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const std::vector<std::string> ids, checked_ids(request->ids()));
    RAG_ASSIGN_OR_RETURN(const auto corpus, corpora_.find(request->corpus()));
    RAG_ASSIGN_OR_RETURN(const uint64_t deleted, corpus->erase(ids));
    response->set_deleted(deleted);
    count_documents();
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::GetInfo(grpc::CallbackServerContext* context,
                                           const v1::GetInfoRequest*,
                                           v1::GetInfoResponse* response) {
  response->set_documents(corpora_.store().document_count());
  response->set_index_kind(std::string(corpora_.find(kDefaultCorpus).value()->index_kind()));
  response->set_dimension(embedder_.dimension());
  response->set_embedding_model(embedding_model_);
  response->set_tokenizer_fingerprint(to_bytes(corpora_.tokenizer_fingerprint()));
  const ClusterStatus status = corpora_.router().status();
  for (size_t i = 0; i < status.shards.size(); ++i) {
    v1::ShardInfo& shard = *response->add_shards();
    shard.set_shard(static_cast<uint32_t>(i));
    shard.set_address(status.shards[i].address);
    shard.set_serving(status.shards[i].serving);
    shard.set_vectors(status.shards[i].vectors);
    shard.set_reason(status.shards[i].reason);
  }
  const absl::Status ready = corpora_.router().ready();
  response->set_ready(ready.ok());
  response->set_not_ready_reason(std::string(ready.message()));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ragcache::retrieval
