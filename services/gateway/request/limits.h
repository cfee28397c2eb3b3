#pragma once

#include <cstddef>
#include <cstdint>

// What one request may hold, by HTTP and by gRPC.
namespace ragcache::gateway {

inline constexpr size_t kMaxModelBytes = 256;
inline constexpr int kMaxMessages = 1024;
inline constexpr size_t kMaxContentBytes = 4 << 20;  // the controller's own bound
inline constexpr int kMaxPrompts = 16;
inline constexpr size_t kMaxCompletionChoices = 64;  // of all prompts
inline constexpr int kMaxSegments = 128;
inline constexpr int kMaxPromptTokens = 1 << 20;

inline constexpr int64_t kMaxAnswerTokens = 1 << 20;
inline constexpr int64_t kMaxChoices = 16;
inline constexpr int64_t kMaxTopK = 1 << 20;
inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int kMaxStops = 4;
inline constexpr size_t kMaxStopBytes = 256;
inline constexpr int kMaxStopTokenIds = 64;
inline constexpr int kMaxLogitBias = 1024;
inline constexpr double kMaxTokenBias = 100;

inline constexpr size_t kMaxCorpusBytes = 64;
inline constexpr size_t kMaxDocumentIdBytes = 256;
inline constexpr int kMaxIds = 1000;
inline constexpr uint32_t kDefaultPage = 100;
inline constexpr uint32_t kMaxPage = 1000;
inline constexpr size_t kMaxQueryBytes = 32 << 10;
inline constexpr int kMaxEmbeddingDimension = 1 << 14;
inline constexpr size_t kMaxEmbeddingBytes = 64 << 10;

inline constexpr size_t kMaxFieldNameBytes = 256;
inline constexpr size_t kMaxFieldTextBytes = 4096;
inline constexpr int kMaxMetadataFields = 64;
inline constexpr int kMaxFieldValues = 256;
inline constexpr int kMaxConditions = 32;

inline constexpr int kMaxCachePaths = 256;
inline constexpr size_t kMaxTenantBytes = 64;
inline constexpr uint32_t kDefaultTreeNodes = 10'000;
inline constexpr uint32_t kMaxTreeNodes = 100'000;

}  // namespace ragcache::gateway
