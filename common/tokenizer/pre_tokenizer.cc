#include "common/tokenizer/pre_tokenizer.h"

#include <unicode/uchar.h>

#include "common/tokenizer/utf8.h"

namespace ragcache {

SmolLmPreTokenizer::Char SmolLmPreTokenizer::read(size_t position) const {
  if (position >= text_.size()) return {CharClass::kEnd, 0};
  const auto byte = static_cast<unsigned char>(text_[position]);
  if (byte < 0x80) {
    if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') return {CharClass::kLetter, 1};
    if (byte >= '0' && byte <= '9') return {CharClass::kNumber, 1};
    if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return {CharClass::kSpace, 1};
    return {CharClass::kOther, 1};
  }
  const Utf8Char character = read_utf8(text_, position);
  if (!character.valid) return {CharClass::kOther, character.n_bytes};
  const auto code_point = static_cast<UChar32>(character.code_point);
  const uint32_t category = U_GET_GC_MASK(code_point);
  if (category & U_GC_L_MASK) return {CharClass::kLetter, character.n_bytes};
  if (category & U_GC_N_MASK) return {CharClass::kNumber, character.n_bytes};
  if (u_isUWhiteSpace(code_point)) return {CharClass::kSpace, character.n_bytes};
  return {CharClass::kOther, character.n_bytes};
}

size_t SmolLmPreTokenizer::run_end(size_t position, CharClass char_class) const {
  for (Char c = read(position); c.char_class == char_class; c = read(position)) {
    position += c.n_bytes;
  }
  return position;
}

size_t SmolLmPreTokenizer::piece_end(size_t start) const {
  const Char first = read(start);
  if (text_[start] == '\'') {
    const std::string_view rest = text_.substr(start + 1, 2);
    for (const std::string_view suffix : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      if (rest.substr(0, suffix.size()) == suffix) return start + 1 + suffix.size();
    }
  }
  switch (first.char_class) {
    case CharClass::kNumber:
      return start + first.n_bytes;
    case CharClass::kLetter:
    case CharClass::kOther:
      return run_end(start, first.char_class);
    case CharClass::kSpace:
    case CharClass::kEnd:
      break;
  }
  if (text_[start] == ' ') {
    const CharClass second = read(start + 1).char_class;
    if (second == CharClass::kLetter || second == CharClass::kOther) {
      return run_end(start + 1, second);
    }
  }
  // A run of spaces leaves its last character to the word that follows.
  size_t last = start;
  size_t end = start;
  for (Char c = first; c.char_class == CharClass::kSpace; c = read(end)) {
    last = end;
    end += c.n_bytes;
  }
  const CharClass after = read(end).char_class;
  const bool word_follows = after == CharClass::kLetter || after == CharClass::kOther;
  return word_follows && last > start ? last : end;
}

std::string_view SmolLmPreTokenizer::next() {
  if (position_ >= text_.size()) return {};
  const size_t start = position_;
  position_ = piece_end(start);
  return text_.substr(start, position_ - start);
}

}  // namespace ragcache
