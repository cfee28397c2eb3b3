#include "services/gateway/metrics.h"

namespace ragcache::gateway {

Metrics::Metrics(metrics::Registry registry_in)
    : registry(std::move(registry_in)),
      connections(metrics::gauge(*registry, "ragcache_http_connections", "Open HTTP connections")),
      streamed_bytes(metrics::counter(*registry, "ragcache_http_streamed_bytes_total",
                                      "Bytes of streamed HTTP answers")),
      uploaded_documents(metrics::counter(*registry, "ragcache_uploaded_documents_total",
                                          "Documents acknowledged to HTTP clients")) {
  for (bool stream : {false, true}) {
    const prometheus::Labels labels = {{"stream", stream ? "true" : "false"}};
    ttft_[stream] =
        &metrics::histogram(*registry, "ragcache_time_to_first_token_seconds",
                            "From the arrival of a chat or completion to its first text",
                            metrics::latency_buckets(), labels);
    tpot_[stream] = &metrics::histogram(
        *registry, "ragcache_time_per_output_token_seconds",
        "From an answer's first text to its end, by token of a choice after the first",
        metrics::latency_buckets(), labels);
    latency_[stream] = &metrics::histogram(*registry, "ragcache_e2e_request_latency_seconds",
                                           "From the arrival of a chat or completion to its end",
                                           metrics::latency_buckets(), labels);
  }
}

void Metrics::count_request(const std::string& route, unsigned status) {
  const std::string code = std::to_string(status);
  std::lock_guard lock(mutex_);
  prometheus::Counter*& counter = requests_[{route, code}];
  if (counter == nullptr) {
    counter = &metrics::counter(*registry, "ragcache_http_requests_total",
                                "HTTP requests by route and status",
                                {{"route", route.empty() ? "none" : route}, {"code", code}});
  }
  counter->Increment();
}

void Metrics::count_call(const std::string& method, const std::string& code) {
  std::lock_guard lock(mutex_);
  prometheus::Counter*& counter = calls_[{method, code}];
  if (counter == nullptr) {
    counter =
        &metrics::counter(*registry, "ragcache_grpc_calls_total", "gRPC calls by method and code",
                          {{"method", method}, {"code", code}});
  }
  counter->Increment();
}

void AnswerTimes::got_text() {
  if (first_text_) return;
  first_text_ = steady_now();
  metrics_.time_to_first_token(stream_).Observe(to_seconds(*first_text_ - arrival_));
}

void AnswerTimes::got_all(uint32_t tokens, size_t choices) {
  const double of_a_choice = static_cast<double>(tokens) / static_cast<double>(choices);
  if (!first_text_ || of_a_choice < 2) return;
  metrics_.time_per_output_token(stream_).Observe(to_seconds(steady_now() - *first_text_) /
                                                  (of_a_choice - 1));
}

void AnswerTimes::ended() {
  metrics_.request_latency(stream_).Observe(to_seconds(steady_now() - arrival_));
}

}  // namespace ragcache::gateway
