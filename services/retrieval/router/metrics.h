#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"

namespace ragcache::retrieval {

// Of the router about its shards.
struct ShardMetrics {
  // replicas[i]: of shard i.
  ShardMetrics(prometheus::Registry& registry, std::span<const uint32_t> replicas) {
    for (size_t shard = 0; shard < replicas.size(); ++shard) {
      const std::string number = std::to_string(shard);
      search_seconds.push_back(&metrics::histogram(
          registry, "ragcache_shard_search_seconds", "Time a shard took to answer a search",
          metrics::latency_buckets(), {{"shard", number}}));
      failures.push_back(&metrics::counter(registry, "ragcache_shard_failures_total",
                                           "Calls of a shard that failed or came too late",
                                           {{"shard", number}}));
      std::vector<prometheus::Gauge*>& of_shard = lag.emplace_back();
      for (uint32_t replica = 0; replica < replicas[shard]; ++replica) {
        of_shard.push_back(
            &metrics::gauge(registry, "ragcache_shard_lag_changes",
                            "Changes of the documents that a replica of a shard does not have yet",
                            {{"shard", number}, {"replica", std::to_string(replica)}}));
      }
    }
  }

  std::vector<prometheus::Histogram*> search_seconds;  // by shard
  std::vector<prometheus::Counter*> failures;          // by shard
  std::vector<std::vector<prometheus::Gauge*>> lag;    // by shard, replica
};

}  // namespace ragcache::retrieval
