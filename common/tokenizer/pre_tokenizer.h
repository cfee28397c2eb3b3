#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/tokenizer/unicode_classes.h"

namespace ragcache {

// How a text is cut into the pieces that byte-level BPE merges within.
enum class PreTokenizerStyle : uint8_t {
  // GPT-2's expression:
  //   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // Each number character alone, and between numbers GPT-2's expression. A number ends the text
  // for what stands before it, so spaces before a number stay one piece.
  kSmolLm,
  // LLaMA 3's expression:
  //   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  //   \s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
  // The same with each number character alone.
  kQwen2,
};

std::string_view name_of(PreTokenizerStyle style);

// Gives one piece a call. Invalid UTF-8 counts as symbols. The pieces are the text without gaps.
class PreTokenizer {
 public:
  PreTokenizer(std::string_view text, PreTokenizerStyle style) : text_(text), style_(style) {}

  // The next piece; empty at the end of the text.
  std::string_view next();

 private:
  struct Char {
    TextClass text_class;
    size_t n_bytes;  // 0 at the end of the text, which is of no class

    bool is(TextClass other) const { return n_bytes > 0 && text_class == other; }
    bool is_word() const { return is(TextClass::kLetter) || is(TextClass::kOther); }
  };

  Char read(size_t position) const;
  bool is_newline(size_t position) const;
  // Where the run of characters of one class that begins at `position` ends.
  size_t run_end(size_t position, TextClass text_class) const;
  // The end of an English contraction, or `start` if there is none.
  size_t contraction_end(size_t start, bool ignore_case) const;
  size_t gpt2_piece_end(size_t start) const;
  size_t llama3_piece_end(size_t start, int numbers_max) const;

  std::string_view text_;
  PreTokenizerStyle style_;
  size_t position_ = 0;
};

}  // namespace ragcache
