#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/metrics/metrics.h"

namespace ragcache::gateway {

// What the gateway counts. Any thread.
class Metrics {
 public:
  explicit Metrics(metrics::Registry registry);

  // `route` is a pattern of the router, so that the labels are few.
  void count_request(const std::string& route, unsigned status);
  // `method` is one of RagService's; `code` the name of a gRPC code.
  void count_call(const std::string& method, const std::string& code);

  // By whether the client asked for a stream.
  prometheus::Histogram& time_to_first_token(bool stream) const { return *ttft_[stream]; }
  prometheus::Histogram& request_latency(bool stream) const { return *latency_[stream]; }

  const metrics::Registry registry;
  prometheus::Gauge& connections;
  prometheus::Counter& streamed_bytes;
  prometheus::Counter& uploaded_documents;

 private:
  using Counters = std::map<std::pair<std::string, std::string>, prometheus::Counter*>;

  prometheus::Histogram* ttft_[2];
  prometheus::Histogram* latency_[2];
  std::mutex mutex_;
  Counters requests_;  // guarded by mutex_, as is the next
  Counters calls_;
};

}  // namespace ragcache::gateway
