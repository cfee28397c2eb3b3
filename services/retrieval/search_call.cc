#include "services/retrieval/search_call.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {

SearchCall::SearchCall(Service& service, const v1::SearchRequest& request)
    : service_(service),
      slot_(service),
      query_(request.query()),
      top_k_(request.top_k()),
      started_(steady_now()) {
  if (absl::Status status = check(); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  boost::asio::post(service_.search_pool(), [this] { embed(); });
}

absl::Status SearchCall::check() const {
  if (query_.empty()) return absl::InvalidArgumentError("query: is empty");
  if (query_.size() > Limits::kQueryBytes) {
    return absl::InvalidArgumentError(
        str_cat("query: ", query_.size(), " bytes, at most ", Limits::kQueryBytes));
  }
  if (top_k_ == 0 || top_k_ > Limits::kTopK) {
    return absl::InvalidArgumentError(str_cat("top_k: ", top_k_, ", must be 1..", Limits::kTopK));
  }
  return slot_.status();
}

void SearchCall::embed() {
  service_.embedder().submit(std::span(&query_, 1), Embedder::Lane::kQuery, stop_.get_token(),
                             [this](absl::StatusOr<Embeddings> embedded) {
                               boost::asio::post(
                                   service_.search_pool(),
                                   [this, embedded = std::move(embedded)] { search(embedded); });
                             });
}

void SearchCall::search(absl::StatusOr<Embeddings> embedded) {
  if (const absl::Status status = fill(embedded); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  StartWriteAndFinish(&response_, {}, grpc::Status::OK);
}

absl::Status SearchCall::fill(const absl::StatusOr<Embeddings>& embedded) {
  RAG_RETURN_IF_ERROR(embedded.status());
  if (stop_.stop_requested()) return absl::CancelledError("the caller has gone");
  const TimePoint embedded_at = steady_now();
  RAG_ASSIGN_OR_RETURN(const std::vector<FoundDocument> found,
                       service_.corpus().search(embedded->vectors, top_k_));
  const Duration embed_time = embedded_at - started_;
  const Duration search_time = steady_now() - embedded_at;
  for (const FoundDocument& document : found) {
    to_message(document.document, document.score, *response_.add_documents());
  }
  response_.set_final(true);
  response_.set_embed_us(to_us(embed_time));
  response_.set_search_us(to_us(search_time));
  service_.metrics().embed_seconds.Observe(to_seconds(embed_time));
  service_.metrics().index_seconds.Observe(to_seconds(search_time));
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
