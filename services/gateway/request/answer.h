#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "ragcache/gateway/v1/gateway.pb.h"

// From what a client asks to what the controller is asked. Every bound of a chat or completion is
// checked here, whichever way it came; messages call fields by their HTTP names.
namespace ragcache::gateway {

struct RagLimits {
  uint32_t default_top_k;
  uint32_t max_top_k;
};

// request_id and tenant are left out; a seed is drawn if the client gave none.
absl::StatusOr<controller::v1::AnswerRequest> to_answer(v1::ChatRequest request,
                                                        const RagLimits& limits);
absl::StatusOr<controller::v1::AnswerRequest> to_answer(v1::CompleteRequest request);

// INVALID_ARGUMENT if the answer may be longer than the model's context.
absl::Status check_max_tokens(const controller::v1::AnswerRequest& answer, uint32_t context_tokens);

}  // namespace ragcache::gateway
