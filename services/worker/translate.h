#pragma once

#include "absl/status/statusor.h"
#include "ragcache/worker/v1/worker.pb.h"
#include "services/worker/engine/messages.h"
#include "services/worker/profile/prefill_profile.h"

namespace ragcache::worker {

// A request of an open stream as the engine's command. INVALID_ARGUMENT names what it lacks: such
// a stream cannot be trusted any further. Open is not among them.
absl::StatusOr<Command> to_command(v1::ExecuteRequest request, uint64_t stream);

// `event.stream`, the number and the worker's epoch are not in the result.
v1::ExecuteResponse to_response(const Event& event);

v1::ProfileResponse to_response(const PrefillProfile& profile);

}  // namespace ragcache::worker
