#pragma once

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "services/retrieval/service.h"

namespace ragcache::retrieval {

// One Search call: check → embedder → search pool → one final response. Each step starts the next
// and nothing else runs beside it; OnCancel() only raises a flag that the steps look at. gRPC owns
// the object from its construction until OnDone().
class SearchCall final : public grpc::ServerWriteReactor<v1::SearchResponse> {
 public:
  SearchCall(Service& service, const v1::SearchRequest& request);

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  absl::Status check() const;
  void embed();
  void search(absl::StatusOr<Embeddings> embedded);
  absl::Status fill(const absl::StatusOr<Embeddings>& embedded);

  Service& service_;
  const CallSlot slot_;
  const std::string query_;
  const uint32_t top_k_;
  std::stop_source stop_;
  TimePoint started_;
  v1::SearchResponse response_;
};

}  // namespace ragcache::retrieval
