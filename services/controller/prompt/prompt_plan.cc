#include "services/controller/prompt/prompt_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::controller {
namespace {

void append(PromptPlan& plan, const SegmentId& parent, const Digest& digest,
            std::vector<TokenId> tokens, std::string name = {}) {
  plan.chain.push_back(
      {SegmentId::derive(parent, digest), static_cast<uint32_t>(tokens.size()), std::move(name)});
  plan.segment_tokens.push_back(std::move(tokens));
}

}  // namespace

std::shared_ptr<const PromptPlan> without_segments(const PromptPlan& plan) {
  auto flat = std::make_shared<PromptPlan>();
  for (const auto& tokens : plan.segment_tokens) {
    flat->tail.insert(flat->tail.end(), tokens.begin(), tokens.end());
  }
  flat->tail.insert(flat->tail.end(), plan.tail.begin(), plan.tail.end());
  return flat;
}

uint32_t tokens_of(std::span<const SegmentSpec> chain) {
  uint32_t total = 0;
  for (const SegmentSpec& spec : chain) total += spec.tokens;
  return total;
}

absl::StatusOr<std::shared_ptr<const PromptPlan>> make_raw_plan(const Tokenizer& tokenizer,
                                                                const SegmentId& chain_root,
                                                                std::vector<RawPart> segments,
                                                                RawPart tail) {
  bool first = true;
  const auto tokens_of = [&](RawPart& part,
                             const std::string& name) -> absl::StatusOr<std::vector<TokenId>> {
    const bool begins = std::exchange(first, false);
    std::vector<TokenId> tokens;
    if (auto* given = std::get_if<std::vector<TokenId>>(&part)) {
      tokens = std::move(*given);
      for (const TokenId id : tokens) {
        if (id < tokenizer.vocabulary_size()) continue;
        return absl::InvalidArgumentError(absl::StrCat(name, ": has the token id ", id,
                                                       ", the model's vocabulary has ",
                                                       tokenizer.vocabulary_size()));
      }
    } else {
      if (begins && tokenizer.bos().has_value()) tokens.push_back(*tokenizer.bos());
      const std::vector<TokenId> ids = tokenizer.encode(std::get<std::string>(part));
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
    if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": has no tokens"));
    return tokens;
  };
  auto plan = std::make_shared<PromptPlan>();
  SegmentId parent = chain_root;
  for (size_t i = 0; i < segments.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                         tokens_of(segments[i], absl::StrCat("segments[", i, "]")));
    const Digest digest = digest_of_tokens(tokens);
    append(*plan, parent, digest, std::move(tokens));
    parent = plan->chain.back().id;
  }
  RAG_ASSIGN_OR_RETURN(plan->tail, tokens_of(tail, "prompt"));
  return plan;
}

absl::StatusOr<std::shared_ptr<const PromptPlan>> make_prompt_plan(
    const PromptFormat& format, const SegmentId& chain_root, const std::string& system,
    std::vector<PromptDocument> documents, size_t cached_documents,
    const std::vector<ChatMessage>& turns) {
  auto plan = std::make_shared<PromptPlan>();
  std::vector<TokenId> root = format.root(system);
  const Digest root_digest = digest_of_tokens(root);
  append(*plan, chain_root, root_digest, std::move(root));
  for (size_t i = 0; i < documents.size(); ++i) {
    PromptDocument& document = documents[i];
    // A wrong digest would let two different texts share one KV.
    if (document.tokens.empty() || digest_of_tokens(document.tokens) != document.token_digest) {
      return absl::InternalError(
          absl::StrCat("document ", i + 1, ": its token digest is not that of its tokens"));
    }
    if (i < cached_documents) {
      append(*plan, plan->chain.back().id, document.token_digest, std::move(document.tokens),
             std::move(document.id));
    } else {
      plan->tail.insert(plan->tail.end(), document.tokens.begin(), document.tokens.end());
    }
  }
  const std::vector<TokenId> turn_tokens = format.tail(turns);
  plan->tail.insert(plan->tail.end(), turn_tokens.begin(), turn_tokens.end());
  return plan;
}

}  // namespace ragcache::controller
