#pragma once

#include <cstdint>
#include <vector>

#include "loadgen/policy/prefixes.h"
#include "services/controller/policy/policy.h"

namespace ragcache::loadgen {

struct ReplayOptions {
  uint32_t block_tokens = 16;
  uint64_t device_tokens = 0;
  uint64_t host_tokens = 0;
  uint64_t bytes_per_token = 0;
  uint32_t waiting = 0;  // requests after the running one that a policy may look ahead to
};

struct ReplayCounts {
  uint64_t documents = 0;
  uint64_t document_hits = 0;
  uint64_t tokens = 0;  // of documents
  uint64_t token_hits = 0;
  uint64_t device_token_hits = 0;
  uint64_t evictions = 0;               // of nodes, from the device to the host or out of the cache
  uint64_t bytes_moved = 0;             // between the tiers, both ways
  double ns_per_request = 0;            // of the tree and the policy
  std::vector<uint32_t> cached_tokens;  // of each request's documents

  double hit_ratio() const { return ratio(document_hits, documents); }
  double token_hit_ratio() const { return ratio(token_hits, tokens); }
  double device_token_hit_ratio() const { return ratio(device_token_hits, tokens); }

 private:
  static double ratio(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

// Serves the requests one after another from a knowledge tree of these sizes, each beginning when
// the one before has ended and its copies are made. The root stays on both tiers, beside the sizes.
// What does not fit into the device goes uncached.
ReplayCounts replay(const Prefixes& prefixes, controller::EvictionPolicy& policy,
                    const controller::PrefillSeconds& prefill_seconds,
                    const ReplayOptions& options);

}  // namespace ragcache::loadgen
