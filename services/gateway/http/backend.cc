#include "services/gateway/http/backend.h"

#include <deque>
#include <utility>

#include "services/gateway/http/upstream.h"

namespace ragcache::gateway::backend {
namespace {

namespace rpb = retrieval::v1;
namespace cpb = controller::v1;
using boost::asio::awaitable;

template <typename Request, typename Response>
Answer<Response> call_controller(Call& call, UnaryMethod<ControllerAsync, Request, Response> method,
                                 Request request) {
  return call_unary<ControllerAsync, Request, Response>(call, call.config().upstream_timeout_ms,
                                                        call.services.stubs->controller->async(),
                                                        method, std::move(request));
}

template <typename Request, typename Response>
Answer<Response> call_retrieval(Call& call, UnaryMethod<RetrievalAsync, Request, Response> method,
                                Request request) {
  return call_unary<RetrievalAsync, Request, Response>(call, call.config().upstream_timeout_ms,
                                                       call.services.stubs->retrieval->async(),
                                                       method, std::move(request));
}

}  // namespace

Answer<cpb::GetStatusResponse> get_status(Call& call) {
  return call_controller(call, &ControllerAsync::GetStatus, cpb::GetStatusRequest());
}

Answer<cpb::ClearCacheResponse> clear_cache(Call& call) {
  return call_controller(call, &ControllerAsync::ClearCache, cpb::ClearCacheRequest());
}

Answer<cpb::GetCacheTreeResponse> get_cache_tree(Call& call, cpb::GetCacheTreeRequest request) {
  return call_controller(call, &ControllerAsync::GetCacheTree, std::move(request));
}

Answer<rpb::GetDocumentsResponse> get_documents(Call& call, rpb::GetDocumentsRequest request) {
  return call_retrieval(call, &RetrievalAsync::GetDocuments, std::move(request));
}

Answer<rpb::ListDocumentsResponse> list_documents(Call& call, rpb::ListDocumentsRequest request) {
  return call_retrieval(call, &RetrievalAsync::ListDocuments, std::move(request));
}

Answer<rpb::DeleteDocumentsResponse> delete_documents(Call& call,
                                                      rpb::DeleteDocumentsRequest request) {
  return call_retrieval(call, &RetrievalAsync::DeleteDocuments, std::move(request));
}

Answer<rpb::CreateCorpusResponse> create_corpus(Call& call, rpb::CreateCorpusRequest request) {
  return call_retrieval(call, &RetrievalAsync::CreateCorpus, std::move(request));
}

Answer<rpb::ListCorporaResponse> list_corpora(Call& call) {
  return call_retrieval(call, &RetrievalAsync::ListCorpora, rpb::ListCorporaRequest());
}

Answer<rpb::DeleteCorpusResponse> delete_corpus(Call& call, rpb::DeleteCorpusRequest request) {
  return call_retrieval(call, &RetrievalAsync::DeleteCorpus, std::move(request));
}

Answer<rpb::EmbedResponse> embed(Call& call, rpb::EmbedRequest request) {
  return call_retrieval(call, &RetrievalAsync::Embed, std::move(request));
}

Answer<rpb::SearchResponse> search(Call& call, rpb::SearchRequest request) {
  auto changed = std::make_shared<http::Event>(call.exchange.executor());
  ReadStream<rpb::SearchRequest, rpb::SearchResponse> stages(
      call, call.config().upstream_timeout_ms, changed, std::move(request),
      [&call](auto* context, auto* wanted, auto* reactor) {
        call.services.stubs->retrieval->async()->Search(context, wanted, reactor);
      });
  rpb::SearchResponse stage;
  while (!stages.done()) {
    if (!stages.take(stage)) {
      co_await changed->wait();
    } else if (stage.final()) {
      co_return stage;
    }
  }
  if (stages.status().ok()) {
    co_return absl::InternalError("retrieval ended a search without its result");
  }
  co_return stages.status();
}

Answer<ModelInfo> find_model(Call& call, std::string name) {
  if (auto known = call.services.model.find(name)) co_return *std::move(known);
  absl::StatusOr<cpb::GetStatusResponse> status = co_await get_status(call);
  if (!status.ok()) co_return status.status();
  co_return call.services.learn_model(name, *status);
}

Answer<EmbedderInfo> find_embedder(Call& call, std::string name) {
  if (auto known = call.services.embedder.find(name)) co_return *std::move(known);
  absl::StatusOr<rpb::GetInfoResponse> info =
      co_await call_retrieval(call, &RetrievalAsync::GetInfo, rpb::GetInfoRequest());
  if (!info.ok()) co_return info.status();
  EmbedderInfo embedder;
  embedder.name = info->embedding_model();
  embedder.dimension = info->dimension();
  co_return call.services.embedder.learn(name, std::move(embedder));
}

struct AnswerStreams::State {
  std::shared_ptr<http::Event> changed;
  std::deque<ReadStream<cpb::AnswerRequest, cpb::AnswerResponse>> streams;
  size_t turn = 0;  // who is looked at first, so that none waits behind the others
};

AnswerStreams::AnswerStreams(Call& call, std::vector<cpb::AnswerRequest> requests)
    : state_(std::make_unique<State>()) {
  state_->changed = std::make_shared<http::Event>(call.exchange.executor());
  for (cpb::AnswerRequest& request : requests) {
    state_->streams.emplace_back(
        call, call.config().answer_timeout_ms, state_->changed, std::move(request),
        [&call](auto* context, auto* wanted, auto* reactor) {
          call.services.stubs->controller->async()->Answer(context, wanted, reactor);
        });
  }
}

AnswerStreams::~AnswerStreams() = default;

awaitable<bool> AnswerStreams::next(size_t& request, cpb::AnswerResponse& response) {
  auto& streams = state_->streams;
  while (true) {
    bool all_done = true;
    for (size_t i = 0; i < streams.size(); ++i) {
      request = (state_->turn + i) % streams.size();
      if (streams[request].take(response)) {
        state_->turn = request + 1;
        co_return true;
      }
      if (!streams[request].done()) {
        all_done = false;
      } else if (status_ = streams[request].status(); !status_.ok()) {
        co_return false;
      }
    }
    if (all_done) co_return false;
    co_await state_->changed->wait();
  }
}

struct UpsertStream::State {
  explicit State(Call& call)
      // It may take hours: the client's body and retrieval's acknowledgements pace it.
      : stream(call, kNoTimeout, [&call](auto* context, auto* reactor) {
          call.services.stubs->retrieval->async()->UpsertDocuments(context, reactor);
        }) {}

  DuplexStream<rpb::UpsertDocumentsRequest, rpb::UpsertDocumentsResponse> stream;
};

UpsertStream::UpsertStream(Call& call) : state_(std::make_unique<State>(call)) {}
UpsertStream::~UpsertStream() = default;

bool UpsertStream::write(rpb::UpsertDocumentsRequest request) {
  return state_->stream.write(std::move(request));
}
void UpsertStream::end_writes() { state_->stream.end_writes(); }
bool UpsertStream::writing() const { return state_->stream.writing(); }
bool UpsertStream::done() const { return state_->stream.done(); }
awaitable<void> UpsertStream::changed() { return state_->stream.changed(); }
bool UpsertStream::take(rpb::UpsertDocumentsResponse& latest) {
  return state_->stream.take(latest);
}
absl::Status UpsertStream::status() const { return state_->stream.status(); }

}  // namespace ragcache::gateway::backend
