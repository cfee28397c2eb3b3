#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ragcache/gateway/v1/gateway.pb.h"
#include "services/gateway/request/json.h"

// Bodies of chat and text completions. What would change the answer and is not done here is refused
// by name, what has no influence is ignored. Bounds are left to request/answer.h.
namespace ragcache::gateway {

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};

struct ChatBody {
  v1::ChatRequest request;
  StreamOptions stream;
};

struct CompletionBody {
  std::vector<v1::CompleteRequest> requests;  // one for each prompt, of one model
  StreamOptions stream;
};

absl::StatusOr<ChatBody> parse_chat(const nlohmann::json& body);
absl::StatusOr<CompletionBody> parse_completion(const nlohmann::json& body);

}  // namespace ragcache::gateway
