#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role;
  std::string content;
};

// How a prompt is cut into segments: root (system message), one segment per document, tail
// (earlier turns, question, assistant header). Each segment is encoded on its own, so that its
// ids never depend on its neighbours; special tokens come from the template alone. Documents stand
// behind the system message and before anything that differs per request:
//
//            root                           per document         tail
//   chatml   <|im_start|>system\n{system}   \n\n{title}\n{text}  <|im_end|>\n, turns, header
//   llama3   <|begin_of_text|>, header      the same             <|eot_id|>, turns, header
//            of system, {system}
//   llama2   <s> [INST] <<SYS>>\n{system}   the same             \n<</SYS>>\n\n{user} [/INST],
//   turns mistral  <s>[INST] {system}             the same             \n\n{user}[/INST], turns
//
// The last two have the system message inside the user's first turn, which the root opens and the
// tail ends. Immutable, so any thread may use it.
class PromptFormat {
 public:
  // FAILED_PRECONDITION if the vocabulary lacks a special token of the template.
  static absl::StatusOr<std::shared_ptr<const PromptFormat>> create(
      std::shared_ptr<const Tokenizer> tokenizer,
      ChatTemplate chat_template = ChatTemplate::kChatMl);
  virtual ~PromptFormat() = default;

  virtual std::vector<TokenId> root(std::string_view system) const = 0;
  // The same for every template.
  std::vector<TokenId> document(std::string_view title, std::string_view text) const;
  // `turns` alternate, the user's first and last; system messages are not among them.
  virtual std::vector<TokenId> tail(std::span<const ChatMessage> turns) const = 0;
  // Whether an answer begins with a space that belongs to the template, not to the text.
  virtual bool answer_has_space() const { return false; }
  // Ids that end the assistant's turn.
  std::span<const TokenId> stop_tokens() const { return stop_tokens_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 protected:
  // `stops`: spellings of tokens that end the assistant's turn, besides the end of the text.
  PromptFormat(std::shared_ptr<const Tokenizer> tokenizer,
               std::initializer_list<std::string_view> stops);

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> stop_tokens_;
};

}  // namespace ragcache
