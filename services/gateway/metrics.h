#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"
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
  prometheus::Histogram& time_per_output_token(bool stream) const { return *tpot_[stream]; }
  prometheus::Histogram& request_latency(bool stream) const { return *latency_[stream]; }

  const metrics::Registry registry;
  prometheus::Gauge& connections;
  prometheus::Counter& streamed_bytes;
  prometheus::Counter& uploaded_documents;

 private:
  using Counters = std::map<std::pair<std::string, std::string>, prometheus::Counter*>;

  prometheus::Histogram* ttft_[2];
  prometheus::Histogram* tpot_[2];
  prometheus::Histogram* latency_[2];
  std::mutex mutex_;
  Counters requests_;  // guarded by mutex_, as is the next
  Counters calls_;
};

// Observes the times of one answer, whichever front gives it. One thread at a time.
class AnswerTimes {
 public:
  // `metrics` outlive it.
  AnswerTimes(const Metrics& metrics, TimePoint arrival, bool stream)
      : metrics_(metrics), arrival_(arrival), stream_(stream) {}

  // Text has come: the first time counts.
  void got_text();
  // All choices are whole, of so many tokens together.
  void got_all(uint32_t tokens, size_t choices);
  void ended();

 private:
  const Metrics& metrics_;
  const TimePoint arrival_;
  const bool stream_;
  std::optional<TimePoint> first_text_;
};

}  // namespace ragcache::gateway
