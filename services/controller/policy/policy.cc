#include "services/controller/policy/policy.h"

#include "common/strings.h"
#include "services/controller/policy/adaptive.h"
#include "services/controller/policy/gdsf.h"
#include "services/controller/policy/lfu.h"
#include "services/controller/policy/lru.h"
#include "services/controller/policy/pgdsf.h"
#include "services/controller/policy/prefill_cost.h"

namespace ragcache::controller {
namespace {

struct Known {
  const char* name;
  std::unique_ptr<EvictionPolicy> (*make)(const PolicyOptions& options);
};

template <typename Policy>
std::unique_ptr<EvictionPolicy> make(const PolicyOptions& options) {
  return std::make_unique<Policy>(options);
}

constexpr Known kKnown[] = {
    {"adaptive", &make<AdaptivePolicy>}, {"pgdsf", &make<PgdsfPolicy>}, {"gdsf", &make<GdsfPolicy>},
    {"lru", &make<LruPolicy>},           {"lfu", &make<LfuPolicy>},
};

}  // namespace

PrefillSeconds PolicyOptions::unmeasured_prefill_seconds() {
  return [cost = PrefillCost::unmeasured()](uint32_t cached_tokens, uint32_t new_tokens) {
    return cost.seconds(cached_tokens, new_tokens);
  };
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> make_policy(const std::string& name,
                                                            const PolicyOptions& options) {
  std::string names;
  for (const Known& known : kKnown) {
    if (name == known.name) return known.make(options);
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return absl::InvalidArgumentError(
      str_cat("cache_policy: is \"", name, "\", must be one of ", names));
}

}  // namespace ragcache::controller
