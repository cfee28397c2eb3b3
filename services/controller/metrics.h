#pragma once

#include "common/metrics/metrics.h"

namespace ragcache::controller {

struct Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : queries_tokens(metrics::counter(registry, "ragcache_prefix_cache_queries_tokens_total",
                                        "Prefix tokens (system prompt and documents) asked for")),
        hits_device_tokens(metrics::counter(registry, "ragcache_prefix_cache_hits_tokens_total",
                                            "Prefix tokens whose KV was cached, by tier",
                                            {{"tier", "device"}})),
        hits_host_tokens(metrics::counter(registry, "ragcache_prefix_cache_hits_tokens_total",
                                          "Prefix tokens whose KV was cached, by tier",
                                          {{"tier", "host"}})),
        evicted_demoted(evictions(registry, "device", "demoted")),
        evicted_freed(evictions(registry, "device", "freed")),
        evicted_host(evictions(registry, "host", "evicted")),
        released_copies(evictions(registry, "host", "copy_released")),
        lost_copies(metrics::counter(registry, "ragcache_cache_lost_copies_total",
                                     "Host copies that were damaged and are not used")),
        preemptions(metrics::counter(registry, "ragcache_num_preemptions_total",
                                     "Requests sent back to the queue for want of blocks")),
        ledger_mismatches(metrics::counter(
            registry, "ragcache_ledger_mismatches_total",
            "Times the worker's count of blocks differed from the controller's: a bug")),
        blocks_free(blocks(registry, "device", "free")),
        blocks_reserved(blocks(registry, "device", "reserved")),
        blocks_cached(blocks(registry, "device", "cached")),
        host_blocks_free(blocks(registry, "host", "free")),
        host_blocks_cached(blocks(registry, "host", "cached")),
        pinned_nodes(metrics::gauge(registry, "ragcache_cache_pinned_nodes",
                                    "Nodes that running requests use")),
        device_clock(clock(registry, "device")),
        host_clock(clock(registry, "host")),
        requests_running(
            metrics::gauge(registry, "ragcache_num_requests_running", "Requests on the worker")),
        requests_waiting(metrics::gauge(registry, "ragcache_num_requests_waiting",
                                        "Requests waiting for the worker")),
        queue_seconds(metrics::histogram(registry, "ragcache_request_queue_time_seconds",
                                         "From retrieval's end to the worker",
                                         metrics::latency_buckets())),
        search_seconds(metrics::histogram(registry, "ragcache_request_search_time_seconds",
                                          "Retrieval as the controller saw it",
                                          metrics::latency_buckets())),
        ttft_seconds(metrics::histogram(registry, "ragcache_controller_time_to_first_token_seconds",
                                        "From the call's arrival to its first token",
                                        metrics::latency_buckets())),
        finished(outcome(registry, "finished")),
        cancelled(outcome(registry, "cancelled")),
        failed(outcome(registry, "failed")) {}

  prometheus::Counter& queries_tokens;
  prometheus::Counter& hits_device_tokens;
  prometheus::Counter& hits_host_tokens;
  prometheus::Counter& evicted_demoted;
  prometheus::Counter& evicted_freed;
  prometheus::Counter& evicted_host;
  prometheus::Counter& released_copies;
  prometheus::Counter& lost_copies;
  prometheus::Counter& preemptions;
  prometheus::Counter& ledger_mismatches;
  prometheus::Gauge& blocks_free;
  prometheus::Gauge& blocks_reserved;
  prometheus::Gauge& blocks_cached;
  prometheus::Gauge& host_blocks_free;
  prometheus::Gauge& host_blocks_cached;
  prometheus::Gauge& pinned_nodes;
  prometheus::Gauge& device_clock;
  prometheus::Gauge& host_clock;
  prometheus::Gauge& requests_running;
  prometheus::Gauge& requests_waiting;
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& search_seconds;
  prometheus::Histogram& ttft_seconds;
  prometheus::Counter& finished;
  prometheus::Counter& cancelled;
  prometheus::Counter& failed;

 private:
  static prometheus::Counter& evictions(prometheus::Registry& registry, const char* tier,
                                        const char* reason) {
    return metrics::counter(registry, "ragcache_cache_evictions_total",
                            "Nodes evicted, by tier and what became of them",
                            {{"tier", tier}, {"reason", reason}});
  }
  static prometheus::Gauge& clock(prometheus::Registry& registry, const char* tier) {
    return metrics::gauge(registry, "ragcache_cache_clock",
                          "Logical clock of the cache policy, by tier", {{"tier", tier}});
  }
  static prometheus::Gauge& blocks(prometheus::Registry& registry, const char* tier,
                                   const char* state) {
    return metrics::gauge(registry, "ragcache_kv_blocks",
                          "KV blocks in the controller's ledger, by tier and state",
                          {{"tier", tier}, {"state", state}});
  }
  static prometheus::Counter& outcome(prometheus::Registry& registry, const char* outcome) {
    return metrics::counter(registry, "ragcache_requests_total", "Requests ended, by outcome",
                            {{"outcome", outcome}});
  }
};

}  // namespace ragcache::controller
