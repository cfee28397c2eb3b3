#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role;
  std::string content;
};

// How a prompt is cut into segments: root (system message), one segment per document, tail
// (earlier turns, question, assistant header). Each segment is encoded on its own, so that its
// ids never depend on its neighbours; special tokens come from the template alone.
//
// ChatML with documents in the system turn:
//   <|im_start|>system\n{system}            root
//   \n\n{title}\n{text}                     one per document
//   <|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n    tail
class PromptFormat {
 public:
  // Chooses the format by the special tokens that the tokenizer has. FAILED_PRECONDITION if none
  // of the known formats fits it.
  static absl::StatusOr<std::shared_ptr<const PromptFormat>> create(
      std::shared_ptr<const Tokenizer> tokenizer);

  std::vector<TokenId> root(std::string_view system) const;
  std::vector<TokenId> document(std::string_view title, std::string_view text) const;
  // `turns` alternate as the client sent them; system messages are not among them.
  std::vector<TokenId> tail(std::span<const ChatMessage> turns) const;
  // Ids that end the assistant's turn.
  std::span<const TokenId> stop_tokens() const { return stop_tokens_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  explicit PromptFormat(std::shared_ptr<const Tokenizer> tokenizer);

  std::shared_ptr<const Tokenizer> tokenizer_;
  TokenId turn_start_ = 0;
  TokenId turn_end_ = 0;
  std::vector<TokenId> stop_tokens_;
};

}  // namespace ragcache
