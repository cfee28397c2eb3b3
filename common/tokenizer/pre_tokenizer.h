#pragma once

#include <cstddef>
#include <string_view>

#include "common/tokenizer/unicode_classes.h"

namespace ragcache {

// Cuts a text into the pieces that byte-level BPE merges within, one piece a call: each number
// character (\p{N}) alone, and between numbers what GPT-2's expression matches,
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// which is GGUF's pre-tokenizer "smollm". A number ends the text for what stands before it: the
// expression is applied to the stretches between numbers one by one, so spaces before a number
// stay one piece. Invalid UTF-8 counts as symbols. The pieces are the text without gaps.
class SmolLmPreTokenizer {
 public:
  explicit SmolLmPreTokenizer(std::string_view text) : text_(text) {}

  // The next piece; empty at the end of the text.
  std::string_view next();

 private:
  struct Char {
    TextClass text_class;
    size_t n_bytes;  // 0 at the end of the text
  };

  Char read(size_t position) const;
  // Where the run of characters of one class that begins at `position` ends.
  size_t run_end(size_t position, TextClass text_class) const;
  size_t piece_end(size_t start) const;

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace ragcache
