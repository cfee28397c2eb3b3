#pragma once

#include "absl/status/status.h"
#include "ragcache/controller/v1/controller.pb.h"

namespace ragcache::controller {

// What a caller got wrong, naming field and bound. Limits are named in the .cc; what depends on the
// prompt's tokens shows later. `vocabulary` is the model's number of tokens.
absl::Status validate(const v1::AnswerRequest& request, uint32_t vocabulary);

}  // namespace ragcache::controller
