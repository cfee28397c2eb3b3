#include "services/gateway/grpc/rag_service.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
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

// A request that `check`, (Request&) -> absl::Status, lets through, and may complete.
template <typename Request, typename Check>
absl::StatusOr<Request> parse_checked(const Bytes& bytes, Check check) {
  RAG_ASSIGN_OR_RETURN(Request request, parse_message<Request>(bytes));
  RAG_RETURN_IF_ERROR(check(request));
  return request;
}

// Starts a unary call if the client is admitted and its request good.
template <typename Async, typename Request, typename Upstream>
grpc::ServerUnaryReactor* forward(Inbound inbound, absl::StatusOr<Request> request, Async* stub,
                                  UnaryMethod<Async, Request, Upstream> method, Bytes* response,
                                  typename UnaryForward<Request, Upstream>::Convert convert) {
  absl::Status status = inbound.admission();
  if (status.ok()) status = request.status();
  auto* call = new UnaryForward<Request, Upstream>(std::move(inbound),
                                                   status.ok() ? *std::move(request) : Request(),
                                                   response, std::move(convert));
  if (status.ok()) {
    call->start(stub, method);
  } else {
    call->finish(status);
  }
  return call;
}

// These give the service's answer as it is.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* forward_to_retrieval(
    Inbound inbound, absl::StatusOr<Request> request,
    UnaryMethod<RetrievalAsync, Request, Response> method, Bytes* response) {
  RetrievalAsync* stub = inbound.services().stubs->retrieval->async();
  return forward(std::move(inbound), std::move(request), stub, method, response,
                 [](const Response& answer) { return to_bytes(answer); });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* forward_to_controller(
    Inbound inbound, absl::StatusOr<Request> request,
    UnaryMethod<ControllerAsync, Request, Response> method, Bytes* response) {
  ControllerAsync* stub = inbound.services().stubs->controller->async();
  return forward(std::move(inbound), std::move(request), stub, method, response,
                 [](const Response& answer) { return to_bytes(answer); });
}

// `Request` holds nothing; what is made of the controller's status answers it.
template <typename Request>
grpc::ServerUnaryReactor* forward_status(
    Inbound inbound, const Bytes& request, Bytes* response,
    std::function<absl::StatusOr<Bytes>(cpb::GetStatusResponse&)> convert) {
  absl::StatusOr<cpb::GetStatusRequest> status_request = cpb::GetStatusRequest();
  if (auto parsed = parse_message<Request>(request); !parsed.ok()) status_request = parsed.status();
  ControllerAsync* stub = inbound.services().stubs->controller->async();
  return forward(std::move(inbound), std::move(status_request), stub, &ControllerAsync::GetStatus,
                 response, std::move(convert));
}

// Chat and Complete: asks for the served model first, where it is not known.
class AnswerForward final : public StreamForward<cpb::AnswerResponse> {
 public:
  // `convert` is (Request) -> absl::StatusOr<AnswerRequest>.
  template <typename Request, typename Convert>
  AnswerForward(Inbound inbound, absl::StatusOr<Request> request, Convert convert)
      : StreamForward(std::move(inbound)),
        times_(services().metrics, this->inbound().arrival(), /*stream=*/true) {
    absl::Status status = this->inbound().admission();
    if (status.ok()) status = take(std::move(request), std::move(convert));
    if (!status.ok()) {
      finish(status);
      return;
    }
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

  template <typename Request, typename Convert>
  absl::Status take(absl::StatusOr<Request> request, Convert convert) {
    RAG_RETURN_IF_ERROR(request.status());
    model_ = request->model();
    RAG_ASSIGN_OR_RETURN(answer_, convert(*std::move(request)));
    return check_bytes("model", model_, 1, kMaxModelBytes);
  }

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

  std::string model_;
  AnswerTimes times_;
  cpb::AnswerRequest answer_;
  grpc::ClientContext status_context_;
  cpb::GetStatusRequest status_request_;
  cpb::GetStatusResponse status_response_;
};

class SearchForward final : public StreamForward<rpb::SearchResponse> {
 public:
  SearchForward(Inbound inbound, absl::StatusOr<rpb::SearchRequest> request)
      : StreamForward(std::move(inbound)) {
    const Config& config = this->inbound().services().config;
    absl::Status status = this->inbound().admission();
    if (status.ok()) status = request.status();
    if (!status.ok()) {
      finish(status);
      return;
    }
    request_ = *std::move(request);
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
  if (request.texts().empty() || request.texts_size() > kMaxEmbeddingTexts) {
    return invalid_field("texts", str_cat("must hold 1 to ", kMaxEmbeddingTexts, " texts, not ",
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

absl::Status check_corpus_name(const std::string& name) {
  return name.empty() ? missing_field("name") : check_corpus("name", name);
}

}  // namespace

RagLimits RagService::limits() const {
  return {.default_top_k = services_.config.default_top_k, .max_top_k = services_.config.max_top_k};
}

RagService::Stream* RagService::Chat(Context* context, const Bytes* request) {
  return new AnswerForward(
      Inbound(services_, context, "Chat"), parse_message<v1::ChatRequest>(*request),
      [this](v1::ChatRequest chat) { return to_answer(std::move(chat), limits()); });
}

RagService::Stream* RagService::Complete(Context* context, const Bytes* request) {
  return new AnswerForward(
      Inbound(services_, context, "Complete"), parse_message<v1::CompleteRequest>(*request),
      [](v1::CompleteRequest complete) { return to_answer(std::move(complete)); });
}

RagService::Unary* RagService::Embed(Context* context, const Bytes* request, Bytes* response) {
  return forward_to_retrieval(Inbound(services_, context, "Embed"),
                              parse_checked<rpb::EmbedRequest>(*request, check_embed),
                              &RetrievalAsync::Embed, response);
}

RagService::Stream* RagService::Search(Context* context, const Bytes* request) {
  const auto check = [this](rpb::SearchRequest& search) {
    return check_search(search, services_.config.default_top_k, services_.config.max_top_k);
  };
  return new SearchForward(Inbound(services_, context, "Search"),
                           parse_checked<rpb::SearchRequest>(*request, check));
}

grpc::ServerBidiReactor<Bytes, Bytes>* RagService::UpsertDocuments(Context* context) {
  return new UpsertForward(Inbound(services_, context, "UpsertDocuments"));
}

RagService::Unary* RagService::GetDocuments(Context* context, const Bytes* request,
                                            Bytes* response) {
  return forward_to_retrieval(
      Inbound(services_, context, "GetDocuments"),
      parse_checked<rpb::GetDocumentsRequest>(*request, check_ids<rpb::GetDocumentsRequest>),
      &RetrievalAsync::GetDocuments, response);
}

RagService::Unary* RagService::ListDocuments(Context* context, const Bytes* request,
                                             Bytes* response) {
  return forward_to_retrieval(Inbound(services_, context, "ListDocuments"),
                              parse_checked<rpb::ListDocumentsRequest>(*request, check_list),
                              &RetrievalAsync::ListDocuments, response);
}

RagService::Unary* RagService::DeleteDocuments(Context* context, const Bytes* request,
                                               Bytes* response) {
  return forward_to_retrieval(
      Inbound(services_, context, "DeleteDocuments"),
      parse_checked<rpb::DeleteDocumentsRequest>(*request, check_ids<rpb::DeleteDocumentsRequest>),
      &RetrievalAsync::DeleteDocuments, response);
}

RagService::Unary* RagService::CreateCorpus(Context* context, const Bytes* request,
                                            Bytes* response) {
  const auto check = [](const rpb::CreateCorpusRequest& create) {
    return check_corpus_settings(create.corpus());
  };
  return forward_to_retrieval(Inbound(services_, context, "CreateCorpus"),
                              parse_checked<rpb::CreateCorpusRequest>(*request, check),
                              &RetrievalAsync::CreateCorpus, response);
}

RagService::Unary* RagService::ListCorpora(Context* context, const Bytes* request,
                                           Bytes* response) {
  return forward_to_retrieval(Inbound(services_, context, "ListCorpora"),
                              parse_message<rpb::ListCorporaRequest>(*request),
                              &RetrievalAsync::ListCorpora, response);
}

RagService::Unary* RagService::DeleteCorpus(Context* context, const Bytes* request,
                                            Bytes* response) {
  const auto check = [](const rpb::DeleteCorpusRequest& remove) {
    return check_corpus_name(remove.name());
  };
  return forward_to_retrieval(Inbound(services_, context, "DeleteCorpus"),
                              parse_checked<rpb::DeleteCorpusRequest>(*request, check),
                              &RetrievalAsync::DeleteCorpus, response);
}

RagService::Unary* RagService::ListModels(Context* context, const Bytes* request, Bytes* response) {
  return forward_status<v1::ListModelsRequest>(
      Inbound(services_, context, "ListModels"), *request, response,
      [this](cpb::GetStatusResponse& status) -> absl::StatusOr<Bytes> {
        RAG_ASSIGN_OR_RETURN(const ModelInfo info, services_.learn_model(kModelAlias, status));
        v1::ListModelsResponse models;
        auto& model = *models.add_models();
        model.set_name(info.name);
        model.set_context_tokens(info.context_tokens);
        return to_bytes(models);
      });
}

RagService::Unary* RagService::GetStatus(Context* context, const Bytes* request, Bytes* response) {
  return forward_status<cpb::GetStatusRequest>(Inbound(services_, context, "GetStatus"), *request,
                                               response, [](cpb::GetStatusResponse& status) {
                                                 status.clear_cache();
                                                 return to_bytes(status);
                                               });
}

RagService::Unary* RagService::GetCacheStats(Context* context, const Bytes* request,
                                             Bytes* response) {
  return forward_status<v1::GetCacheStatsRequest>(
      Inbound(services_, context, "GetCacheStats", Access::kAdmin), *request, response,
      [](cpb::GetStatusResponse& status) {
        v1::GetCacheStatsResponse stats;
        stats.mutable_cache()->Swap(status.mutable_cache());
        stats.set_block_tokens(status.block_tokens());
        return to_bytes(stats);
      });
}

RagService::Unary* RagService::GetCacheTree(Context* context, const Bytes* request,
                                            Bytes* response) {
  return forward_to_controller(Inbound(services_, context, "GetCacheTree", Access::kAdmin),
                               parse_checked<cpb::GetCacheTreeRequest>(*request, check_cache_tree),
                               &ControllerAsync::GetCacheTree, response);
}

RagService::Unary* RagService::ClearCache(Context* context, const Bytes* request, Bytes* response) {
  return forward_to_controller(Inbound(services_, context, "ClearCache", Access::kAdmin),
                               parse_message<cpb::ClearCacheRequest>(*request),
                               &ControllerAsync::ClearCache, response);
}

RagService::Unary* RagService::UpdateCachePaths(Context* context, const Bytes* request,
                                                Bytes* response) {
  const auto update = parse_message<v1::UpdateCachePathsRequest>(*request);
  return new PathsForward(Inbound(services_, context, "UpdateCachePaths", Access::kAdmin),
                          update.ok()
                              ? to_answers(*update, limits())
                              : absl::StatusOr<std::vector<cpb::AnswerRequest>>(update.status()),
                          response);
}

}  // namespace ragcache::gateway
