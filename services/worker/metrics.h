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
        cached_device_tokens(cached_tokens(registry, "device")),
        cached_host_tokens(cached_tokens(registry, "host")),
        generation_tokens(
            metrics::counter(registry, "ragcache_generation_tokens_total", "Tokens generated")),
        blocks_free(blocks(registry, "free")),
        blocks_reserved(blocks(registry, "reserved")),
        blocks_cached(blocks(registry, "cached")),
        host_blocks_free(host_blocks(registry, "free")),
        host_blocks_cached(host_blocks(registry, "cached")),
        saved_bytes(transferred(registry, "save")),
        loaded_bytes(transferred(registry, "load")),
        save_seconds(transfer_seconds(registry, "save")),
        load_seconds(transfer_seconds(registry, "load")),
        load_stall_seconds(metrics::histogram(
            registry, "ragcache_worker_load_stall_seconds",
            "What an iteration with loads waited for layers that were not copied yet",
            metrics::latency_buckets())),
        damaged_segments(metrics::counter(registry, "ragcache_worker_damaged_segments_total",
                                          "Host copies whose checksum did not match")),
        requests_running(metrics::gauge(registry, "ragcache_worker_requests_running",
                                        "Requests that the engine has")) {}

  prometheus::Histogram& iteration_seconds;
  prometheus::Histogram& iteration_tokens;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& cached_device_tokens;
  prometheus::Counter& cached_host_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Gauge& blocks_free;
  prometheus::Gauge& blocks_reserved;
  prometheus::Gauge& blocks_cached;
  prometheus::Gauge& host_blocks_free;
  prometheus::Gauge& host_blocks_cached;
  prometheus::Counter& saved_bytes;
  prometheus::Counter& loaded_bytes;
  prometheus::Histogram& save_seconds;
  prometheus::Histogram& load_seconds;
  prometheus::Histogram& load_stall_seconds;
  prometheus::Counter& damaged_segments;
  prometheus::Gauge& requests_running;

 private:
  static prometheus::Counter& cached_tokens(prometheus::Registry& registry,
                                            const std::string& tier) {
    return metrics::counter(registry, "ragcache_worker_cached_prompt_tokens_total",
                            "Prompt tokens whose KV was there already, by tier", {{"tier", tier}});
  }
  static prometheus::Gauge& host_blocks(prometheus::Registry& registry, const std::string& state) {
    return metrics::gauge(registry, "ragcache_worker_host_blocks",
                          "Blocks of the host arena as the worker counts them, by state",
                          {{"state", state}});
  }
  static prometheus::Counter& transferred(prometheus::Registry& registry,
                                          const std::string& direction) {
    return metrics::counter(registry, "ragcache_worker_transfer_bytes_total",
                            "Bytes copied between the tiers, by direction",
                            {{"direction", direction}});
  }
  static prometheus::Histogram& transfer_seconds(prometheus::Registry& registry,
                                                 const std::string& direction) {
    return metrics::histogram(registry, "ragcache_worker_transfer_seconds",
                              "One copy between the tiers, by direction",
                              metrics::latency_buckets(), {{"direction", direction}});
  }
  static prometheus::Gauge& blocks(prometheus::Registry& registry, const std::string& state) {
    return metrics::gauge(registry, "ragcache_worker_kv_blocks",
                          "KV blocks as the worker counts them, by state", {{"state", state}});
  }
};

}  // namespace ragcache::worker
