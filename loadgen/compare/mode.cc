#include "loadgen/compare/mode.h"

#include <algorithm>

#include "common/strings.h"
#include "services/controller/policy/policy.h"

namespace ragcache::loadgen {

absl::StatusOr<Mode> make_mode(const std::string& name, const TierSizes& sizes) {
  static constexpr std::string_view kRagcache = "ragcache";
  const std::vector<std::string> policies = controller::policy_names();
  Mode mode{.name = name};
  mode.cache.policy = policies.front();
  bool host = false;
  if (name == "none") {
    mode.cache.reuses = false;
    mode.flags = {"--prefix-cache", "false"};
  } else if (name == "gpu-lru") {
    mode.cache.policy = "lru";
    mode.cache.history = false;
  } else if (name == kRagcache) {
    host = true;
  } else if (name == "ragcache-no-host") {
    host = false;
  } else {
    const bool is_variant = name.starts_with(std::string(kRagcache) + "-");
    mode.cache.policy = is_variant ? name.substr(kRagcache.size() + 1) : "";
    host = true;
    if (std::find(policies.begin(), policies.end(), mode.cache.policy) == policies.end()) {
      std::string known = "none, gpu-lru, ragcache, ragcache-no-host";
      for (const std::string& policy : policies) known += str_cat(", ragcache-", policy);
      return absl::InvalidArgumentError(str_cat("--modes: has \"", name, "\", must be of ", known));
    }
  }
  const auto flag = [&mode](const char* option, const std::string& value) {
    mode.flags.push_back(option);
    mode.flags.push_back(value);
  };
  flag("--kv-memory-mib", std::to_string(sizes.device_mib));
  flag("--host-memory-mib", std::to_string(host ? sizes.host_mib : 0));
  if (mode.cache.reuses) {
    flag("--cache-policy", mode.cache.policy);
    flag("--cache-history", mode.cache.history ? "true" : "false");
  }
  mode.cache.device_tokens = sizes.device_tokens;
  mode.cache.host_tokens = host ? sizes.host_tokens : 0;
  return mode;
}

}  // namespace ragcache::loadgen
