#include "common/tokenizer/prompt_format.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

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

absl::StatusOr<TokenId> require_special(const Tokenizer& tokenizer, std::string_view spelling,
                                        ChatTemplate chat_template) {
  if (const auto id = tokenizer.special_token(spelling)) return *id;
  return absl::FailedPreconditionError(str_cat("the model's vocabulary has no special token ",
                                               spelling, ", which chat template ",
                                               ragcache::name_of(chat_template), " needs"));
}

// A prompt's tokens, piece by piece: each text is encoded on its own.
class Prompt {
 public:
  explicit Prompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Prompt& special(std::optional<TokenId> id) {
    if (id) ids_.push_back(*id);
    return *this;
  }
  Prompt& text(std::string_view text) {
    const std::vector<TokenId> ids = tokenizer_.encode(text);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return *this;
  }
  std::vector<TokenId> take() { return std::move(ids_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
};

// Every turn has a header of its own, and so has the system message.
class ChatMlFormat final : public PromptFormat {
 public:
  ChatMlFormat(std::shared_ptr<const Tokenizer> tokenizer, TokenId turn_start, TokenId turn_end)
      : PromptFormat(std::move(tokenizer), {"<|im_end|>", "<|endoftext|>"}),
        turn_start_(turn_start),
        turn_end_(turn_end) {}

  std::vector<TokenId> root(std::string_view system) const override {
    Prompt prompt(tokenizer());
    prompt.special(tokenizer().bos());
    return begin(prompt, ChatRole::kSystem, system).take();
  }

  std::vector<TokenId> tail(std::span<const ChatMessage> turns) const override {
    Prompt prompt(tokenizer());
    prompt.special(turn_end_).text("\n");
    for (const ChatMessage& turn : turns) {
      begin(prompt, turn.role, turn.content).special(turn_end_).text("\n");
    }
    return begin(prompt, ChatRole::kAssistant, "").take();
  }

 private:
  Prompt& begin(Prompt& prompt, ChatRole role, std::string_view content) const {
    return prompt.special(turn_start_).text(str_cat(name_of(role), "\n", content));
  }

  const TokenId turn_start_;
  const TokenId turn_end_;
};

// The same idea; a header lies between two tokens of its own.
class Llama3Format final : public PromptFormat {
 public:
  Llama3Format(std::shared_ptr<const Tokenizer> tokenizer, TokenId text_start, TokenId header_start,
               TokenId header_end, TokenId turn_end)
      : PromptFormat(std::move(tokenizer), {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}),
        text_start_(text_start),
        header_start_(header_start),
        header_end_(header_end),
        turn_end_(turn_end) {}

  std::vector<TokenId> root(std::string_view system) const override {
    Prompt prompt(tokenizer());
    prompt.special(text_start_);
    return begin(prompt, ChatRole::kSystem, system).take();
  }

  std::vector<TokenId> tail(std::span<const ChatMessage> turns) const override {
    Prompt prompt(tokenizer());
    prompt.special(turn_end_);
    for (const ChatMessage& turn : turns) {
      begin(prompt, turn.role, turn.content).special(turn_end_);
    }
    return begin(prompt, ChatRole::kAssistant, "").take();
  }

 private:
  Prompt& begin(Prompt& prompt, ChatRole role, std::string_view content) const {
    return prompt.special(header_start_)
        .text(name_of(role))
        .special(header_end_)
        .text(str_cat("\n\n", content));
  }

  const TokenId text_start_;
  const TokenId header_start_;
  const TokenId header_end_;
  const TokenId turn_end_;
};

// User's turns stand in [INST] and [/INST], which are text here; each pair of turns is a text of
// its own.
class Llama2Format final : public PromptFormat {
 public:
  Llama2Format(std::shared_ptr<const Tokenizer> tokenizer, TokenId text_start, TokenId text_end)
      : PromptFormat(std::move(tokenizer), {"</s>"}),
        text_start_(text_start),
        text_end_(text_end) {}

  std::vector<TokenId> root(std::string_view system) const override {
    return Prompt(tokenizer())
        .special(text_start_)
        .text(str_cat(space(), "[INST] <<SYS>>\n", system))
        .take();
  }

  std::vector<TokenId> tail(std::span<const ChatMessage> turns) const override {
    Prompt prompt(tokenizer());
    bool system_open = true;
    for (const ChatMessage& turn : turns) {
      if (turn.role == ChatRole::kAssistant) {
        prompt.text(str_cat(" ", turn.content, " ")).special(text_end_);
      } else if (system_open) {
        prompt.text(str_cat("\n<</SYS>>\n\n", turn.content, " [/INST]"));
      } else {
        prompt.special(text_start_).text(str_cat(space(), "[INST] ", turn.content, " [/INST]"));
      }
      system_open = false;
    }
    return prompt.take();
  }

  bool answer_has_space() const override { return true; }

 private:
  std::string_view space() const { return tokenizer().space_prefix() ? " " : ""; }

  const TokenId text_start_;
  const TokenId text_end_;
};

// Like LLaMA 2 without marks around the system message. Later vocabularies have special tokens for
// [INST] and [/INST]; without them both are text, with spaces inside. The model was trained on
// texts that were encoded one by one, so each begins with the vocabulary's space.
class MistralFormat final : public PromptFormat {
 public:
  MistralFormat(std::shared_ptr<const Tokenizer> tokenizer, TokenId text_start, TokenId text_end)
      : PromptFormat(std::move(tokenizer), {"</s>"}),
        text_start_(text_start),
        text_end_(text_end),
        turn_start_(this->tokenizer().special_token("[INST]")),
        turn_end_(this->tokenizer().special_token("[/INST]")) {}

  std::vector<TokenId> root(std::string_view system) const override {
    Prompt prompt(tokenizer());
    prompt.special(text_start_);
    return begin(prompt, system).take();
  }

  std::vector<TokenId> tail(std::span<const ChatMessage> turns) const override {
    Prompt prompt(tokenizer());
    bool turn_open = true;
    for (const ChatMessage& turn : turns) {
      if (turn.role == ChatRole::kAssistant) {
        prompt.text(str_cat(space(), turn.content)).special(text_end_);
        continue;
      }
      if (turn_open) {
        prompt.text(str_cat("\n\n", turn.content, end_text()));
      } else {
        begin(prompt, str_cat(turn.content, end_text()));
      }
      prompt.special(turn_end_);
      turn_open = false;
    }
    return prompt.take();
  }

  bool answer_has_space() const override { return tokenizer().space_prefix(); }

 private:
  std::string_view space() const { return tokenizer().space_prefix() ? " " : ""; }
  std::string_view end_text() const { return turn_end_ ? "" : " [/INST]"; }

  Prompt& begin(Prompt& prompt, std::string_view content) const {
    if (turn_start_) return prompt.special(turn_start_).text(str_cat(space(), content));
    return prompt.text(str_cat(space(), "[INST] ", content));
  }

  const TokenId text_start_;
  const TokenId text_end_;
  const std::optional<TokenId> turn_start_;
  const std::optional<TokenId> turn_end_;
};

}  // namespace

PromptFormat::PromptFormat(std::shared_ptr<const Tokenizer> tokenizer,
                           std::initializer_list<std::string_view> stops)
    : tokenizer_(std::move(tokenizer)) {
  const auto add = [&](std::optional<TokenId> id) {
    if (id && std::ranges::find(stop_tokens_, *id) == stop_tokens_.end()) {
      stop_tokens_.push_back(*id);
    }
  };
  for (const std::string_view stop : stops) add(tokenizer_->special_token(stop));
  add(tokenizer_->eos());
}

absl::StatusOr<std::shared_ptr<const PromptFormat>> PromptFormat::create(
    std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat_template) {
  const auto special = [&](std::string_view spelling) {
    return require_special(*tokenizer, spelling, chat_template);
  };
  switch (chat_template) {
    case ChatTemplate::kChatMl: {
      RAG_ASSIGN_OR_RETURN(const TokenId turn_start, special("<|im_start|>"));
      RAG_ASSIGN_OR_RETURN(const TokenId turn_end, special("<|im_end|>"));
      return std::make_shared<ChatMlFormat>(tokenizer, turn_start, turn_end);
    }
    case ChatTemplate::kLlama3: {
      RAG_ASSIGN_OR_RETURN(const TokenId text_start, special("<|begin_of_text|>"));
      RAG_ASSIGN_OR_RETURN(const TokenId header_start, special("<|start_header_id|>"));
      RAG_ASSIGN_OR_RETURN(const TokenId header_end, special("<|end_header_id|>"));
      RAG_ASSIGN_OR_RETURN(const TokenId turn_end, special("<|eot_id|>"));
      return std::make_shared<Llama3Format>(tokenizer, text_start, header_start, header_end,
                                            turn_end);
    }
    case ChatTemplate::kLlama2:
    case ChatTemplate::kMistral: {
      RAG_ASSIGN_OR_RETURN(const TokenId text_start, special("<s>"));
      RAG_ASSIGN_OR_RETURN(const TokenId text_end, special("</s>"));
      if (chat_template == ChatTemplate::kLlama2) {
        return std::make_shared<Llama2Format>(tokenizer, text_start, text_end);
      }
      return std::make_shared<MistralFormat>(tokenizer, text_start, text_end);
    }
  }
  return absl::InternalError("unknown chat template");
}

std::vector<TokenId> PromptFormat::document(std::string_view title, std::string_view text) const {
  return tokenizer_->encode(str_cat("\n\n", title, "\n", text));
}

}  // namespace ragcache
