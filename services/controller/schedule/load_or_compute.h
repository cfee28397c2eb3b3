#pragma once

#include <cstdint>

#include "services/controller/policy/prefill_cost.h"

namespace ragcache::controller {

// A prompt that begins with tokens on the device, goes on with some that the host has, and ends
// with new ones.
struct HostHit {
  uint32_t device_tokens;
  uint32_t host_tokens;
  uint32_t new_tokens;
  uint64_t bytes;  // of the host's part
};

// Whether the first token comes sooner by loading the host's part than by computing it too.
inline bool worth_loading(const HostHit& hit, double load_bytes_per_second,
                          const PrefillCost& prefill) {
  const uint32_t cached = hit.device_tokens + hit.host_tokens;
  return static_cast<double>(hit.bytes) / load_bytes_per_second <
         prefill.seconds(hit.device_tokens, hit.host_tokens + hit.new_tokens) -
             prefill.seconds(cached, hit.new_tokens);
}

}  // namespace ragcache::controller
