#include "services/retrieval/search_call.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cmath>
#include <utility>

#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/convert.h"

namespace ragcache::retrieval {

SearchCall::SearchCall(Service& service, const v1::SearchRequest& request, Duration timeout)
    : service_(service), slot_(service.calls()), timeout_(timeout), started_(steady_now()) {
  if (absl::Status status = read(request); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  boost::asio::post(service_.search_pool(), [this] {
    if (given_.vectors.empty()) {
      embed();
    } else {
      search(given_);
    }
  });
}

absl::Status SearchCall::read(const v1::SearchRequest& request) {
  RAG_RETURN_IF_ERROR(slot_.status());
  if (request.embedding_size() > 0) {
    RAG_RETURN_IF_ERROR(read_embedding(request));
  } else if (request.query().empty()) {
    return absl::InvalidArgumentError("query: is empty");
  }
  query_ = request.query();
  if (query_.size() > Limits::kQueryBytes) {
    return absl::InvalidArgumentError(
        str_cat("query: ", query_.size(), " bytes, at most ", Limits::kQueryBytes));
  }
  top_k_ = request.top_k();
  if (top_k_ == 0 || top_k_ > Limits::kTopK) {
    return absl::InvalidArgumentError(str_cat("top_k: ", top_k_, ", must be 1..", Limits::kTopK));
  }
  RAG_ASSIGN_OR_RETURN(filter_, filter_from(request.filter()));
  RAG_ASSIGN_OR_RETURN(corpus_, service_.corpora().find(request.corpus()));
  return absl::OkStatus();
}

absl::Status SearchCall::read_embedding(const v1::SearchRequest& request) {
  if (!request.query().empty()) {
    return absl::InvalidArgumentError("query, embedding: both are given, one is enough");
  }
  const auto dimension = static_cast<int>(service_.embedder().dimension());
  if (request.embedding_size() != dimension) {
    return absl::InvalidArgumentError(str_cat("embedding: ", request.embedding_size(),
                                              " numbers, those of the index have ", dimension));
  }
  double squares = 0;
  for (int i = 0; i < dimension; ++i) {
    if (!std::isfinite(request.embedding(i))) {
      return absl::InvalidArgumentError(str_cat("embedding[", i, "]: is not a finite number"));
    }
    squares += double{request.embedding(i)} * double{request.embedding(i)};
  }
  if (squares == 0) return absl::InvalidArgumentError("embedding: is all zeros");
  const double scale = 1 / std::sqrt(squares);
  for (const float value : request.embedding()) {
    given_.vectors.push_back(static_cast<float>(value * scale));
  }
  return absl::OkStatus();
}

void SearchCall::embed() {
  service_.embedder().submit(std::span(&query_, 1), Embedder::Lane::kQuery, stop_.get_token(),
                             [this](absl::StatusOr<Embeddings> embedded) {
                               boost::asio::post(
                                   service_.search_pool(),
                                   [this, embedded = std::move(embedded)] { search(embedded); });
                             });
}

void SearchCall::search(const absl::StatusOr<Embeddings>& embedded) {
  if (!embedded.ok()) return answer(embedded.status());
  embedded_at_ = steady_now();
  const Duration left = std::max(timeout_ - (embedded_at_ - started_), Duration::zero());
  corpus_->search(embedded->vectors, top_k_, filter_, left, stop_.get_token(),
                  [this](absl::StatusOr<std::vector<FoundDocument>> found) {
                    boost::asio::post(service_.search_pool(),
                                      [this, found = std::move(found)] { answer(found); });
                  });
}

void SearchCall::answer(const absl::StatusOr<std::vector<FoundDocument>>& found) {
  if (const absl::Status status = fill(found); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  StartWriteAndFinish(&response_, {}, grpc::Status::OK);
}

absl::Status SearchCall::fill(const absl::StatusOr<std::vector<FoundDocument>>& found) {
  RAG_RETURN_IF_ERROR(found.status());
  const Duration embed_time = embedded_at_ - started_;
  const Duration search_time = steady_now() - embedded_at_;
  for (const FoundDocument& document : *found) {
    RAG_RETURN_IF_ERROR(to_message(document.document, document.score, *response_.add_documents()));
  }
  response_.set_cache_scope(to_message(corpus_->settings().cache_scope));
  response_.set_final(true);
  response_.set_embed_us(to_us(embed_time));
  response_.set_search_us(to_us(search_time));
  RAG_RETURN_IF_ERROR(check_length(response_, "top_k"));
  service_.metrics().embed_seconds.Observe(to_seconds(embed_time));
  service_.metrics().index_seconds.Observe(to_seconds(search_time));
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
