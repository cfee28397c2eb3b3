#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "services/retrieval/service.h"

namespace ragcache::retrieval {

// One Search call: check → embedder, unless the caller brings an embedding → the router's search →
// one final response. Each step starts the next and nothing else runs beside it; OnCancel() only
// asks the steps to stop. gRPC owns the object from its construction until OnDone().
class SearchCall final : public grpc::ServerWriteReactor<v1::SearchResponse> {
 public:
  SearchCall(Service& service, const v1::SearchRequest& request, Duration timeout);

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  absl::Status read(const v1::SearchRequest& request);
  absl::Status read_embedding(const v1::SearchRequest& request);
  void embed();
  void search(const absl::StatusOr<Embeddings>& embedded);
  void answer(const absl::StatusOr<std::vector<FoundDocument>>& found);
  absl::Status fill(const absl::StatusOr<std::vector<FoundDocument>>& found);

  Service& service_;
  const CallSlot slot_;
  std::string query_;
  Embeddings given_;  // the caller's, made a unit vector; empty if there is none
  uint32_t top_k_ = 0;
  Filter filter_;
  std::shared_ptr<Corpus> corpus_;
  std::stop_source stop_;
  const Duration timeout_;
  const TimePoint started_;
  TimePoint embedded_at_;
  v1::SearchResponse response_;
};

}  // namespace ragcache::retrieval
