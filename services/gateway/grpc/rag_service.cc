#include "services/gateway/grpc/rag_service.h"

#include <string>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/grpc/forward.h"
#include "services/gateway/grpc/paths_forward.h"
#include "services/gateway/grpc/upsert_forward.h"
#include "services/gateway/request/answer.h"
#include "services/gateway/request/cache.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/filter.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace cpb = controller::v1;
namespace rpb = retrieval::v1;

// Starts a unary call if the client is admitted and its request `checked`.
template <typename Async, typename Request, typename Upstream, typename Response, typename Convert>
grpc::ServerUnaryReactor* forward(Inbound inbound, const absl::Status& checked, Async* stub,
                                  UnaryMethod<Async, Request, Upstream> method, Request request,
                                  Response* response, Convert convert) {
  absl::Status status = inbound.admission();
  if (status.ok()) status = checked;
  auto* call = new UnaryForward<Request, Upstream, Response, Convert>(
      std::move(inbound), std::move(request), response, std::move(convert));
  if (status.ok()) {
    call->start(stub, method);
  } else {
    call->finish(status);
  }
  return call;
}

// The same with the service's answer as it is.
template <typename Async, typename Request, typename Response>
grpc::ServerUnaryReactor* forward_as_it_is(Inbound inbound, const absl::Status& checked,
                                           Async* stub,
                                           UnaryMethod<Async, Request, Response> method,
                                           Request request, Response* response) {
  return forward(std::move(inbound), checked, stub, method, std::move(request), response,
                 [](Response& from, Response& to) {
                   to.Swap(&from);
                   return absl::OkStatus();
                 });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* forward_to_retrieval(
    Inbound inbound, const absl::Status& checked,
    UnaryMethod<RetrievalAsync, Request, Response> method, Request request, Response* response) {
  RetrievalAsync* stub = inbound.services().stubs->retrieval->async();
  return forward_as_it_is(std::move(inbound), checked, stub, method, std::move(request), response);
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* forward_to_controller(
    Inbound inbound, const absl::Status& checked,
    UnaryMethod<ControllerAsync, Request, Response> method, Request request, Response* response) {
  ControllerAsync* stub = inbound.services().stubs->controller->async();
  return forward_as_it_is(std::move(inbound), checked, stub, method, std::move(request), response);
}

template <typename Response, typename Convert>
grpc::ServerUnaryReactor* forward_status(Inbound inbound, Response* response, Convert convert) {
  ControllerAsync* stub = inbound.services().stubs->controller->async();
  return forward(std::move(inbound), absl::OkStatus(), stub, &ControllerAsync::GetStatus,
                 cpb::GetStatusRequest(), response, std::move(convert));
}

// Chat and Complete: asks for the served model first, where it is not known.
class AnswerForward final : public StreamForward<cpb::AnswerResponse> {
 public:
  AnswerForward(Inbound inbound, std::string model, absl::StatusOr<cpb::AnswerRequest> answer)
      : StreamForward(std::move(inbound)),
        model_(std::move(model)),
        times_(services().metrics, this->inbound().arrival(), /*stream=*/true) {
    absl::Status status = this->inbound().admission();
    if (status.ok()) status = answer.status();
    if (status.ok()) status = check_bytes("model", model_, 1, kMaxModelBytes);
    if (!status.ok()) {
      finish(status);
      return;
    }
    answer_ = *std::move(answer);
    answer_.set_request_id(this->inbound().request_id());
    answer_.set_tenant(this->inbound().tenant());
    if (auto known = services().model.find(model_)) {
      ask(*known);
    } else {
      find_model();
    }
  }

  void OnCancel() override {
    status_context_.TryCancel();
    StreamForward::OnCancel();
  }

 private:
  Services& services() { return inbound().services(); }

  void find_model() {
    inbound().prepare(status_context_, services().config.upstream_timeout_ms);
    services().stubs->controller->async()->GetStatus(
        &status_context_, &status_request_, &status_response_, [this](const grpc::Status& status) {
          const absl::StatusOr<ModelInfo> model =
              status.ok() ? services().learn_model(model_, status_response_)
                          : absl::StatusOr<ModelInfo>(from_grpc_status(status));
          if (model.ok()) {
            ask(*model);
          } else {
            finish(model.status());
          }
        });
  }

  void ask(const ModelInfo& model) {
    if (absl::Status fits = check_max_tokens(answer_, model.context_tokens); !fits.ok()) {
      finish(fits);
      return;
    }
    start(services().config.answer_timeout_ms, [this](auto* context, auto* reactor) {
      services().stubs->controller->async()->Answer(context, &answer_, reactor);
    });
  }

  void edit(cpb::AnswerResponse& response) override {
    if (response.has_delta()) {
      const cpb::Delta& delta = response.delta();
      if (!delta.text().empty() || !delta.logprobs().empty()) times_.got_text();
    } else if (response.has_completed()) {
      times_.got_all(response.completed().completion_tokens(), answer_.n());
      times_.ended();
    }
  }

  const std::string model_;
  AnswerTimes times_;
  cpb::AnswerRequest answer_;
  grpc::ClientContext status_context_;
  cpb::GetStatusRequest status_request_;
  cpb::GetStatusResponse status_response_;
};

class SearchForward final : public StreamForward<rpb::SearchResponse> {
 public:
  SearchForward(Inbound inbound, rpb::SearchRequest request)
      : StreamForward(std::move(inbound)), request_(std::move(request)) {
    const Config& config = this->inbound().services().config;
    absl::Status status = this->inbound().admission();
    if (status.ok()) status = check_search(request_, config.default_top_k, config.max_top_k);
    if (!status.ok()) {
      finish(status);
      return;
    }
    start(config.upstream_timeout_ms, [this](auto* context, auto* reactor) {
      this->inbound().services().stubs->retrieval->async()->Search(context, &request_, reactor);
    });
  }

 private:
  void edit(rpb::SearchResponse& response) override {
    for (types::v1::Document& document : *response.mutable_documents()) {
      document.clear_segment_tokens();
      document.clear_token_digest();
    }
  }

  rpb::SearchRequest request_;
};

absl::Status check_embed(const rpb::EmbedRequest& request) {
  if (request.texts().empty() || request.texts_size() > kMaxEmbeddingInputs) {
    return invalid_field("texts", str_cat("must hold 1 to ", kMaxEmbeddingInputs, " texts, not ",
                                          request.texts_size()));
  }
  for (int i = 0; i < request.texts_size(); ++i) {
    RAG_RETURN_IF_ERROR(
        check_bytes(str_cat("texts[", i, "]"), request.texts(i), 1, kMaxEmbeddingBytes));
  }
  return absl::OkStatus();
}

absl::Status check_list(rpb::ListDocumentsRequest& request) {
  if (request.limit() == 0) request.set_limit(kDefaultPage);
  if (request.limit() > kMaxPage) {
    return invalid_field("limit", str_cat("must be 1 to ", kMaxPage, ", not ", request.limit()));
  }
  if (!request.after_id().empty()) {
    RAG_RETURN_IF_ERROR(check_document_id("after_id", request.after_id()));
  }
  return check_corpus("corpus", request.corpus());
}

template <typename Request>
absl::Status check_ids(const Request& request) {
  RAG_RETURN_IF_ERROR(check_stored_ids("ids", request.ids()));
  return check_corpus("corpus", request.corpus());
}

absl::Status check_name(const std::string& name) {
  return name.empty() ? missing_field("name") : check_corpus("name", name);
}

}  // namespace

RagService::AnswerWriter* RagService::Chat(Context* context, const v1::ChatRequest* request) {
  const RagLimits limits = {.default_top_k = services_.config.default_top_k,
                            .max_top_k = services_.config.max_top_k};
  return new AnswerForward(Inbound(services_, context, "Chat"), request->model(),
                           to_answer(*request, limits));
}

RagService::AnswerWriter* RagService::Complete(Context* context,
                                               const v1::CompleteRequest* request) {
  return new AnswerForward(Inbound(services_, context, "Complete"), request->model(),
                           to_answer(*request));
}

grpc::ServerUnaryReactor* RagService::Embed(Context* context, const rpb::EmbedRequest* request,
                                            rpb::EmbedResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "Embed"), check_embed(*request),
                              &RetrievalAsync::Embed, *request, response);
}

grpc::ServerWriteReactor<rpb::SearchResponse>* RagService::Search(
    Context* context, const rpb::SearchRequest* request) {
  return new SearchForward(Inbound(services_, context, "Search"), *request);
}

grpc::ServerBidiReactor<rpb::UpsertDocumentsRequest, rpb::UpsertDocumentsResponse>*
RagService::UpsertDocuments(Context* context) {
  return new UpsertForward(Inbound(services_, context, "UpsertDocuments"));
}

grpc::ServerUnaryReactor* RagService::GetDocuments(Context* context,
                                                   const rpb::GetDocumentsRequest* request,
                                                   rpb::GetDocumentsResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "GetDocuments"), check_ids(*request),
                              &RetrievalAsync::GetDocuments, *request, response);
}

grpc::ServerUnaryReactor* RagService::ListDocuments(Context* context,
                                                    const rpb::ListDocumentsRequest* request,
                                                    rpb::ListDocumentsResponse* response) {
  rpb::ListDocumentsRequest wanted = *request;
  const absl::Status checked = check_list(wanted);
  return forward_to_retrieval(Inbound(services_, context, "ListDocuments"), checked,
                              &RetrievalAsync::ListDocuments, std::move(wanted), response);
}

grpc::ServerUnaryReactor* RagService::DeleteDocuments(Context* context,
                                                      const rpb::DeleteDocumentsRequest* request,
                                                      rpb::DeleteDocumentsResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "DeleteDocuments"), check_ids(*request),
                              &RetrievalAsync::DeleteDocuments, *request, response);
}

grpc::ServerUnaryReactor* RagService::CreateCorpus(Context* context,
                                                   const rpb::CreateCorpusRequest* request,
                                                   rpb::CreateCorpusResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "CreateCorpus"),
                              check_corpus_settings(request->corpus()),
                              &RetrievalAsync::CreateCorpus, *request, response);
}

grpc::ServerUnaryReactor* RagService::ListCorpora(Context* context,
                                                  const rpb::ListCorporaRequest* request,
                                                  rpb::ListCorporaResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "ListCorpora"), absl::OkStatus(),
                              &RetrievalAsync::ListCorpora, *request, response);
}

grpc::ServerUnaryReactor* RagService::DeleteCorpus(Context* context,
                                                   const rpb::DeleteCorpusRequest* request,
                                                   rpb::DeleteCorpusResponse* response) {
  return forward_to_retrieval(Inbound(services_, context, "DeleteCorpus"),
                              check_name(request->name()), &RetrievalAsync::DeleteCorpus, *request,
                              response);
}

grpc::ServerUnaryReactor* RagService::ListModels(Context* context, const v1::ListModelsRequest*,
                                                 v1::ListModelsResponse* response) {
  return forward_status(Inbound(services_, context, "ListModels"), response,
                        [this](cpb::GetStatusResponse& status, v1::ListModelsResponse& models) {
                          RAG_ASSIGN_OR_RETURN(const ModelInfo info,
                                               services_.learn_model(kModelAlias, status));
                          auto& model = *models.add_models();
                          model.set_name(info.name);
                          model.set_context_tokens(info.context_tokens);
                          return absl::OkStatus();
                        });
}

grpc::ServerUnaryReactor* RagService::GetStatus(Context* context, const cpb::GetStatusRequest*,
                                                cpb::GetStatusResponse* response) {
  return forward_status(Inbound(services_, context, "GetStatus"), response,
                        [](cpb::GetStatusResponse& status, cpb::GetStatusResponse& told) {
                          told.Swap(&status);
                          told.clear_cache();
                          return absl::OkStatus();
                        });
}

grpc::ServerUnaryReactor* RagService::GetCacheStats(Context* context,
                                                    const v1::GetCacheStatsRequest*,
                                                    v1::GetCacheStatsResponse* response) {
  return forward_status(Inbound(services_, context, "GetCacheStats", Access::kAdmin), response,
                        [](cpb::GetStatusResponse& status, v1::GetCacheStatsResponse& told) {
                          told.mutable_cache()->Swap(status.mutable_cache());
                          told.set_block_tokens(status.block_tokens());
                          return absl::OkStatus();
                        });
}

grpc::ServerUnaryReactor* RagService::GetCacheTree(Context* context,
                                                   const cpb::GetCacheTreeRequest* request,
                                                   cpb::GetCacheTreeResponse* response) {
  cpb::GetCacheTreeRequest wanted = *request;
  const absl::Status checked = check_cache_tree(wanted);
  return forward_to_controller(Inbound(services_, context, "GetCacheTree", Access::kAdmin), checked,
                               &ControllerAsync::GetCacheTree, std::move(wanted), response);
}

grpc::ServerUnaryReactor* RagService::ClearCache(Context* context,
                                                 const cpb::ClearCacheRequest* request,
                                                 cpb::ClearCacheResponse* response) {
  return forward_to_controller(Inbound(services_, context, "ClearCache", Access::kAdmin),
                               absl::OkStatus(), &ControllerAsync::ClearCache, *request, response);
}

grpc::ServerUnaryReactor* RagService::UpdateCachePaths(Context* context,
                                                       const v1::UpdateCachePathsRequest* request,
                                                       v1::UpdateCachePathsResponse* response) {
  const RagLimits limits = {.default_top_k = services_.config.default_top_k,
                            .max_top_k = services_.config.max_top_k};
  return new PathsForward(Inbound(services_, context, "UpdateCachePaths", Access::kAdmin),
                          to_answers(*request, limits), response);
}

}  // namespace ragcache::gateway
