#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/worker/engine/messages.h"

namespace ragcache::worker {

// Why a command contradicts itself or a model of this vocabulary and context: the message names the
// field and its bound. What depends on the engine's state is the engine's to check.
absl::Status check(const Generate& command, uint64_t vocabulary, uint64_t context_tokens);

}  // namespace ragcache::worker
