#pragma once

#include <memory>
#include <span>
#include <string>

#include "common/tokenizer/tokenizer.h"

namespace ragcache {

// Turns a growing answer's token ids into text as they come. What it gives is always valid UTF-8
// and never half a character: bytes of an unfinished character wait for the next token, bytes
// that can be no character become U+FFFD. Special tokens give no text. One object per answer; not
// thread safe.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer);

  // The text that these tokens complete; may be empty.
  std::string push(std::span<const TokenId> ids);
  std::string push(TokenId id) { return push({&id, 1}); }
  // Whether no character is unfinished.
  bool between_characters() const { return pending_.empty(); }
  // The end of the answer: U+FFFD if a character is still unfinished, else nothing.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;  // the beginning of one character: at most 3 bytes between calls
};

}  // namespace ragcache
