#pragma once

#include "common/metrics/metrics.h"

namespace ragcache::worker {

struct Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : iteration_seconds(metrics::histogram(registry, "ragcache_worker_iteration_seconds",
                                             "One iteration of the engine: model and sampling",
                                             metrics::latency_buckets())),
        iteration_tokens(metrics::histogram(
            registry, "ragcache_iteration_tokens_total", "Tokens that one iteration computed",
            {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096})),
        prompt_tokens(metrics::counter(registry, "ragcache_prompt_tokens_total",
                                       "Prompt tokens computed; cached ones are not")),
        cached_prompt_tokens(metrics::counter(registry,
                                              "ragcache_worker_cached_prompt_tokens_total",
                                              "Prompt tokens whose KV was there already")),
        generation_tokens(
            metrics::counter(registry, "ragcache_generation_tokens_total", "Tokens generated")),
        blocks_free(blocks(registry, "free")),
        blocks_reserved(blocks(registry, "reserved")),
        blocks_cached(blocks(registry, "cached")),
        requests_running(metrics::gauge(registry, "ragcache_worker_requests_running",
                                        "Requests that the engine has")) {}

  prometheus::Histogram& iteration_seconds;
  prometheus::Histogram& iteration_tokens;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& cached_prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Gauge& blocks_free;
  prometheus::Gauge& blocks_reserved;
  prometheus::Gauge& blocks_cached;
  prometheus::Gauge& requests_running;

 private:
  static prometheus::Gauge& blocks(prometheus::Registry& registry, const std::string& state) {
    return metrics::gauge(registry, "ragcache_worker_kv_blocks",
                          "KV blocks as the worker counts them, by state", {{"state", state}});
  }
};

}  // namespace ragcache::worker
