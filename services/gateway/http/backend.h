#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "services/gateway/http/call.h"

// The services behind the gateway as coroutines of one HTTP call: the only unit of this folder that
// sees gRPC. A call to a service ends with the client's disconnect or deadline.
namespace ragcache::gateway::backend {

template <typename Response>
using Answer = boost::asio::awaitable<absl::StatusOr<Response>>;

Answer<controller::v1::GetStatusResponse> get_status(Call& call);
Answer<controller::v1::ClearCacheResponse> clear_cache(Call& call);
Answer<controller::v1::GetCacheTreeResponse> get_cache_tree(
    Call& call, controller::v1::GetCacheTreeRequest request);
Answer<retrieval::v1::GetDocumentsResponse> get_documents(
    Call& call, retrieval::v1::GetDocumentsRequest request);
Answer<retrieval::v1::ListDocumentsResponse> list_documents(
    Call& call, retrieval::v1::ListDocumentsRequest request);
Answer<retrieval::v1::DeleteDocumentsResponse> delete_documents(
    Call& call, retrieval::v1::DeleteDocumentsRequest request);
Answer<retrieval::v1::CreateCorpusResponse> create_corpus(
    Call& call, retrieval::v1::CreateCorpusRequest request);
Answer<retrieval::v1::ListCorporaResponse> list_corpora(Call& call);
Answer<retrieval::v1::DeleteCorpusResponse> delete_corpus(
    Call& call, retrieval::v1::DeleteCorpusRequest request);
Answer<retrieval::v1::EmbedResponse> embed(Call& call, retrieval::v1::EmbedRequest request);
// The final stage.
Answer<retrieval::v1::SearchResponse> search(Call& call, retrieval::v1::SearchRequest request);

// The served model, and the one that embeds. `name` is its name or "ragcache"; else NOT_FOUND.
Answer<ModelInfo> find_model(Call& call, std::string name);
Answer<EmbedderInfo> find_embedder(Call& call, std::string name);

// The controller's answers to several requests at once. Of each at most one response waits here: a
// client that does not take its answer holds the controller back.
class AnswerStreams {
 public:
  AnswerStreams(Call& call, std::vector<controller::v1::AnswerRequest> requests);
  ~AnswerStreams();

  // The next response and whose it is. False when one of the answers has failed or all have ended:
  // status() tells which.
  boost::asio::awaitable<bool> next(size_t& request, controller::v1::AnswerResponse& response);
  absl::Status status() const { return status_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  absl::Status status_;
};

// One upload to a corpus. Acknowledgements are cumulative: the latest is kept.
class UpsertStream {
 public:
  explicit UpsertStream(Call& call);
  ~UpsertStream();

  // False if retrieval takes no more: see status(). REQUIRED: !writing().
  bool write(retrieval::v1::UpsertDocumentsRequest request);
  void end_writes();
  bool writing() const;
  bool done() const;
  // Until a write ended, an acknowledgement came or the call ended.
  boost::asio::awaitable<void> changed();
  // Takes the acknowledgement that came since the last call.
  bool take(retrieval::v1::UpsertDocumentsResponse& latest);
  absl::Status status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ragcache::gateway::backend
