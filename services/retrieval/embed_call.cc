#include "services/retrieval/embed_call.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {

grpc::ServerUnaryReactor* Service::Embed(grpc::CallbackServerContext*,
                                         const v1::EmbedRequest* request,
                                         v1::EmbedResponse* response) {
  return new EmbedCall(*this, *request, *response);
}

EmbedCall::EmbedCall(Service& service, const v1::EmbedRequest& request, v1::EmbedResponse& response)
    : service_(service), slot_(service.calls()), response_(response) {
  if (const absl::Status status = check(request); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  // A question goes before ingest; a heap of texts takes its turn with it.
  const auto lane = request.texts_size() == 1 ? Embedder::Lane::kQuery : Embedder::Lane::kIngest;
  boost::asio::post(service_.search_pool(), [this, lane,
                                             texts = std::vector<std::string>(
                                                 request.texts().begin(), request.texts().end())] {
    service_.embedder().submit(
        texts, lane, stop_.get_token(), [this](absl::StatusOr<Embeddings> embedded) {
          boost::asio::post(service_.search_pool(),
                            [this, embedded = std::move(embedded)] { finish(embedded); });
        });
  });
}

absl::Status EmbedCall::check(const v1::EmbedRequest& request) const {
  if (request.texts_size() == 0 || request.texts_size() > Limits::kTextsPerMessage) {
    return absl::InvalidArgumentError(
        str_cat("texts: ", request.texts_size(), ", must be 1..", Limits::kTextsPerMessage));
  }
  for (int i = 0; i < request.texts_size(); ++i) {
    const std::string& text = request.texts(i);
    if (text.empty()) return absl::InvalidArgumentError(str_cat("texts[", i, "]: is empty"));
    if (text.size() > Limits::kQueryBytes) {
      return absl::InvalidArgumentError(
          str_cat("texts[", i, "]: ", text.size(), " bytes, at most ", Limits::kQueryBytes));
    }
  }
  return slot_.status();
}

void EmbedCall::finish(const absl::StatusOr<Embeddings>& embedded) {
  if (!embedded.ok()) return Finish(to_grpc_status(embedded.status()));
  const size_t dimension = service_.embedder().dimension();
  const std::vector<float>& vectors = embedded->vectors;
  for (size_t begin = 0; begin < vectors.size(); begin += dimension) {
    const auto first = vectors.begin() + static_cast<ptrdiff_t>(begin);
    response_.add_embeddings()->mutable_values()->Add(first,
                                                      first + static_cast<ptrdiff_t>(dimension));
  }
  response_.set_tokens(embedded->tokens);
  Finish(grpc::Status::OK);
}

}  // namespace ragcache::retrieval
