#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/tokenizer/prompt_format.h"
#include "services/controller/tree/knowledge_tree.h"

namespace ragcache::controller {

// A document's part of a prompt, tokenised at ingest.
struct PromptDocument {
  std::string id;
  std::vector<TokenId> tokens;
  Digest token_digest;
};

uint32_t tokens_of(std::span<const SegmentSpec> chain);

// A prompt in segments: root, one per document (or those of a raw prompt), and the tail that is
// this request's own. Immutable once made, shared by the actors that handle the request.
struct PromptPlan {
  std::vector<SegmentSpec> chain;                    // root first; a raw prompt may have none
  std::vector<std::vector<TokenId>> segment_tokens;  // of each segment of the chain
  std::vector<TokenId> tail;

  uint32_t prefix_tokens() const { return tokens_of(chain); }
  uint32_t prompt_tokens() const { return prefix_tokens() + static_cast<uint32_t>(tail.size()); }
};

// The same prompt with all of it in the tail: nothing of it is cached or found cached.
std::shared_ptr<const PromptPlan> without_segments(const PromptPlan& plan);

// Part of a raw prompt: plain text, in which the spelling of a special token means nothing, or ids.
using RawPart = std::variant<std::string, std::vector<TokenId>>;

// A prompt without template: each part is encoded on its own, and nothing is put between them. BOS
// comes first if it is the model's rule that prompts begin with it, unless the first part is ids:
// these are taken as they are. INVALID_ARGUMENT names a part without tokens, and an id outside the
// vocabulary.
absl::StatusOr<std::shared_ptr<const PromptPlan>> make_raw_plan(const Tokenizer& tokenizer,
                                                                const SegmentId& chain_root,
                                                                std::vector<RawPart> segments,
                                                                RawPart tail);

// `chain_root` is the parent of every root segment: model and cache scope. The documents behind the
// first `cached_documents` stand in the tail: orderings multiply with their number, and reuse falls
// (RAGCache §6.1). `turns` are the conversation without system messages. INTERNAL if a document's
// digest is not that of its tokens.
absl::StatusOr<std::shared_ptr<const PromptPlan>> make_prompt_plan(
    const PromptFormat& format, const SegmentId& chain_root, const std::string& system,
    std::vector<PromptDocument> documents, size_t cached_documents,
    const std::vector<ChatMessage>& turns);

}  // namespace ragcache::controller
