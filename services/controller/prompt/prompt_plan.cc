#include "services/controller/prompt/prompt_plan.h"

#include "absl/strings/str_cat.h"

namespace ragcache::controller {
namespace {

void append(PromptPlan& plan, const SegmentId& parent, const Digest& digest,
            std::vector<TokenId> tokens) {
  plan.chain.push_back({SegmentId::derive(parent, digest), static_cast<uint32_t>(tokens.size())});
  plan.segment_tokens.push_back(std::move(tokens));
}

}  // namespace

uint32_t PromptPlan::prefix_tokens() const {
  uint32_t total = 0;
  for (const SegmentSpec& spec : chain) total += spec.tokens;
  return total;
}

absl::StatusOr<std::shared_ptr<const PromptPlan>> make_prompt_plan(
    const PromptFormat& format, const SegmentId& chain_root, const std::string& system,
    std::vector<PromptDocument> documents, const std::vector<ChatMessage>& turns) {
  auto plan = std::make_shared<PromptPlan>();
  std::vector<TokenId> root = format.root(system);
  const Digest root_digest = digest_of_tokens(root);
  append(*plan, chain_root, root_digest, std::move(root));
  for (PromptDocument& document : documents) {
    // A wrong digest would let two different texts share one KV.
    if (document.tokens.empty() || digest_of_tokens(document.tokens) != document.token_digest) {
      return absl::InternalError(absl::StrCat("document ", plan->chain.size(),
                                              ": its token digest is not that of its tokens"));
    }
    append(*plan, plan->chain.back().id, document.token_digest, std::move(document.tokens));
  }
  plan->tail = format.tail(turns);
  return plan;
}

}  // namespace ragcache::controller
