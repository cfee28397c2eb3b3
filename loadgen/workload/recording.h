#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {

// A piece of a prompt of which only the length is known; equal ids stand for equal text.
struct RecordedPart {
  std::string id;
  uint32_t tokens = 0;
};

// A request as the public traces tell of it.
struct RecordedRequest {
  static constexpr uint32_t kTokensMax = 1 << 20;  // of a part, a prompt or an answer

  double time_s = 0;
  std::vector<RecordedPart> documents;  // in prompt order
  std::vector<RecordedPart> question;   // what follows them
  uint32_t output_tokens = 1;
};

// RAGPulse's data folder (https://github.com/flashserve/RAGPulse). Passages are the documents, in
// recorded order. All else goes into the question, so that the passages are a prefix that requests
// can share: parts of the system prompt, earlier turns, results of web searches and what the chat
// template took (of both only the sum is known), and what the user wrote.
absl::StatusOr<std::vector<RecordedRequest>> read_ragpulse(const std::string& folder);

// A trace of Mooncake's FAST'25 release (https://github.com/kvcache-ai/Mooncake): blocks of 512
// tokens by their hash. Each is a document; the last one, full or not, is the question.
absl::StatusOr<std::vector<RecordedRequest>> read_mooncake(const std::string& path);

// A trace of Azure's LLM inference (https://github.com/Azure/AzurePublicDataset): lengths alone, so
// that each prompt is its own.
absl::StatusOr<std::vector<RecordedRequest>> read_azure(const std::string& path);

// Puts substitutes for the parts, in the order of the recorded times. Requests with longer prompts
// than the options allow are left out.
absl::StatusOr<Workload> substitute(std::vector<RecordedRequest> recorded,
                                    const WorkloadOptions& options);

}  // namespace ragcache::loadgen
