#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/tokenizer/incremental_decoder.h"

namespace ragcache::controller {

// Turns one answer's tokens into the text its client sees: whole UTF-8 characters, cut before the
// first stop string. Text that might be the beginning of a stop string is held back until that is
// decided. Tells also which tokens the text is of, in whole tokens.
class AnswerText {
 public:
  // What to send now.
  struct Piece {
    std::string text;
    // How many more of the answer's tokens have nothing held back any more. Of those that a stop
    // string cut, the ones that begin before it.
    size_t tokens = 0;
  };

  // `drop_space`: a space that the text begins with is none of it (PromptFormat).
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop,
             bool drop_space = false);

  // Nothing once stopped().
  Piece append(std::span<const TokenId> tokens);
  // What is still held back, when no more tokens come.
  Piece finish();
  // A stop string was met.
  bool stopped() const { return stopped_; }

 private:
  // Where a token's text lies in the decoded text.
  struct Extent {
    size_t begin;
    std::optional<size_t> end;  // none: its last character is unfinished
  };

  void hold(std::string text);
  Piece release(bool all);

  IncrementalDecoder decoder_;
  const std::vector<std::string> stop_;
  bool drop_space_;
  std::string held_;
  size_t released_ = 0;        // bytes of decoded text before held_
  std::deque<Extent> tokens_;  // not given out
  bool stopped_ = false;
};

}  // namespace ragcache::controller
