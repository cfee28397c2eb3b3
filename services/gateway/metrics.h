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

  // By whether the client asked for a stream.
  prometheus::Histogram& time_to_first_token(bool stream) const { return *ttft_[stream]; }
  prometheus::Histogram& request_latency(bool stream) const { return *latency_[stream]; }

  const metrics::Registry registry;
  prometheus::Gauge& connections;
  prometheus::Counter& streamed_bytes;
  prometheus::Counter& uploaded_documents;

 private:
  prometheus::Histogram* ttft_[2];
  prometheus::Histogram* latency_[2];
  std::mutex mutex_;
  std::map<std::pair<std::string, unsigned>, prometheus::Counter*> requests_;  // guarded by mutex_
};

}  // namespace ragcache::gateway
