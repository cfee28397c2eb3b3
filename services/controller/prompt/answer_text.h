#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/tokenizer/incremental_decoder.h"

namespace ragcache::controller {

// Turns a request's tokens into the text its client sees: whole UTF-8 characters, cut before the
// first stop string. Text that might be the beginning of a stop string is held back until that is
// decided.
class AnswerText {
 public:
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop);

  // The text to send now. Nothing once stopped().
  std::string append(std::span<const TokenId> tokens);
  // What is still held back, when no more tokens come.
  std::string finish();
  // A stop string was met.
  bool stopped() const { return stopped_; }

 private:
  std::string release(bool all);

  IncrementalDecoder decoder_;
  const std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace ragcache::controller
