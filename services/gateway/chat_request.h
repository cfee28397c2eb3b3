#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ragcache/controller/v1/controller.pb.h"

namespace ragcache::gateway {

struct ChatDefaults {
  uint32_t top_k;
  uint32_t max_top_k;
};

// A POST /v1/chat/completions body, checked.
struct ChatRequest {
  controller::v1::AnswerRequest answer;  // request_id is left out
  std::string model;
  bool has_seed = false;
  bool stream = false;
  bool include_usage = false;
};

inline constexpr size_t kMaxMessages = 1024;
inline constexpr size_t kMaxStops = 4;
inline constexpr size_t kMaxStopBytes = 256;
inline constexpr size_t kMaxDocumentIdBytes = 256;
inline constexpr uint32_t kMaxAnswerTokens = 1 << 20;

// Refuses what would change the answer and is not done here, ignores what would not.
absl::StatusOr<ChatRequest> parse_chat_request(std::string_view body, const ChatDefaults& defaults);

}  // namespace ragcache::gateway
