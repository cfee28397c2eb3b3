#include "common/tokenizer/prompt_format.h"

#include <algorithm>
#include <utility>

#include "common/strings.h"

namespace ragcache {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kTextEnd = "<|endoftext|>";

std::string_view name_of(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
  }
  return "user";
}

void append(std::vector<TokenId>& ids, const std::vector<TokenId>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

PromptFormat::PromptFormat(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

absl::StatusOr<std::shared_ptr<const PromptFormat>> PromptFormat::create(
    std::shared_ptr<const Tokenizer> tokenizer) {
  const std::optional<TokenId> turn_start = tokenizer->special_token(kTurnStart);
  const std::optional<TokenId> turn_end = tokenizer->special_token(kTurnEnd);
  if (!turn_start || !turn_end) {
    return absl::FailedPreconditionError(
        str_cat("the model's vocabulary has no ", turn_start ? kTurnEnd : kTurnStart,
                ": only models with the ChatML prompt format are supported"));
  }
  std::shared_ptr<PromptFormat> format(new PromptFormat(tokenizer));
  format->turn_start_ = *turn_start;
  format->turn_end_ = *turn_end;
  for (const std::optional<TokenId> stop :
       {turn_end, tokenizer->eos(), tokenizer->special_token(kTextEnd)}) {
    if (stop && std::ranges::find(format->stop_tokens_, *stop) == format->stop_tokens_.end()) {
      format->stop_tokens_.push_back(*stop);
    }
  }
  return format;
}

std::vector<TokenId> PromptFormat::root(std::string_view system) const {
  std::vector<TokenId> ids;
  if (const std::optional<TokenId> bos = tokenizer_->bos()) ids.push_back(*bos);
  ids.push_back(turn_start_);
  append(ids, tokenizer_->encode(str_cat(name_of(ChatRole::kSystem), "\n", system)));
  return ids;
}

std::vector<TokenId> PromptFormat::document(std::string_view title, std::string_view text) const {
  return tokenizer_->encode(str_cat("\n\n", title, "\n", text));
}

std::vector<TokenId> PromptFormat::tail(std::span<const ChatMessage> turns) const {
  std::vector<TokenId> ids;
  const auto end_turn = [&] {
    ids.push_back(turn_end_);
    append(ids, tokenizer_->encode("\n"));
  };
  end_turn();
  for (const ChatMessage& turn : turns) {
    ids.push_back(turn_start_);
    append(ids, tokenizer_->encode(str_cat(name_of(turn.role), "\n", turn.content)));
    end_turn();
  }
  ids.push_back(turn_start_);
  append(ids, tokenizer_->encode(str_cat(name_of(ChatRole::kAssistant), "\n")));
  return ids;
}

}  // namespace ragcache
