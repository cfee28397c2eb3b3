#include "loadgen/experiment/prediction.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "loadgen/policy/prefixes.h"
#include "loadgen/policy/replay.h"

namespace ragcache::loadgen {

absl::StatusOr<std::vector<double>> prefill_seconds(const Material& material,
                                                    const CacheModel& cache,
                                                    const controller::PrefillCost& cost) {
  const controller::PrefillSeconds seconds = [&cost](uint32_t cached, uint32_t fresh) {
    return cost.seconds(cached, fresh);
  };
  std::vector<uint32_t> cached(material.plans.size(), 0);
  if (cache.reuses) {
    RAG_ASSIGN_OR_RETURN(const auto policy,
                         controller::make_policy(cache.policy, {.remember = cache.history,
                                                                .prefill_seconds = seconds}));
    const Prefixes prefixes = prefixes_of(material.trace, material.block_tokens);
    cached = replay(prefixes, *policy, seconds,
                    {.block_tokens = material.block_tokens,
                     .device_tokens = cache.device_tokens,
                     .host_tokens = cache.host_tokens})
                 .cached_tokens;
    // The system prompt is always there.
    for (size_t i = 0; i < cached.size(); ++i) cached[i] += material.plans[i]->chain[0].tokens;
  }
  std::vector<double> result;
  for (size_t i = 0; i < cached.size(); ++i) {
    result.push_back(cost.seconds(cached[i], material.plans[i]->prompt_tokens() - cached[i]));
  }
  return result;
}

double queued_ttft_ms(const std::vector<Duration>& at, const std::vector<double>& seconds) {
  RAG_CHECK(at.size() == seconds.size());
  double free_at = 0, sum = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const double arrival = to_seconds(at[i]);
    free_at = std::max(free_at, arrival) + seconds[i];
    sum += free_at - arrival;
  }
  return at.empty() ? 0 : 1000 * sum / static_cast<double>(at.size());
}

}  // namespace ragcache::loadgen
