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
    ttft_[stream] = &metrics::histogram(*registry, "ragcache_time_to_first_token_seconds",
                                        "From a chat request's arrival to its first text",
                                        metrics::latency_buckets(), labels);
    latency_[stream] = &metrics::histogram(*registry, "ragcache_e2e_request_latency_seconds",
                                           "From a chat request's arrival to its end",
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

}  // namespace ragcache::gateway
