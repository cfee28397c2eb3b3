#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/controller/policy/prefill_cost.h"

namespace ragcache::loadgen {

// A table of measured prefill times as the worker keeps it:
// {"cached_tokens":[…],"new_tokens":[…],"seconds":[…]}, rows by cached tokens. INVALID_ARGUMENT
// names file and field.
absl::StatusOr<controller::PrefillCost> read_profile(const std::string& path);

}  // namespace ragcache::loadgen
