#include "services/controller/policy/policy.h"

#include "absl/strings/str_cat.h"
#include "services/controller/policy/lru.h"

namespace ragcache::controller {

std::vector<std::string> policy_names() { return {"lru"}; }

absl::StatusOr<std::unique_ptr<EvictionPolicy>> make_policy(const std::string& name) {
  if (name == "lru") return std::make_unique<LruPolicy>();
  return absl::InvalidArgumentError(
      absl::StrCat("cache_policy: is \"", name, "\", must be one of lru"));
}

}  // namespace ragcache::controller
