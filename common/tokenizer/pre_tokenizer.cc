#include "common/tokenizer/pre_tokenizer.h"

#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

bool is_word(TextClass text_class) {
  return text_class == TextClass::kLetter || text_class == TextClass::kOther;
}

}  // namespace

SmolLmPreTokenizer::Char SmolLmPreTokenizer::read(size_t position) const {
  // The end is like a number: it belongs to no word and no run of spaces.
  if (position >= text_.size()) return {TextClass::kNumber, 0};
  const Utf8Char character = read_utf8(text_, position);
  return {text_class(character.code_point), character.n_bytes};
}

size_t SmolLmPreTokenizer::run_end(size_t position, TextClass text_class) const {
  for (Char c = read(position); c.text_class == text_class; c = read(position)) {
    position += c.n_bytes;
  }
  return position;
}

size_t SmolLmPreTokenizer::piece_end(size_t start) const {
  if (text_[start] == '\'') {
    const std::string_view rest = text_.substr(start + 1, 2);
    for (const std::string_view suffix : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      if (rest.substr(0, suffix.size()) == suffix) return start + 1 + suffix.size();
    }
  }
  const Char first = read(start);
  if (first.text_class == TextClass::kNumber) return start + first.n_bytes;
  if (is_word(first.text_class)) return run_end(start, first.text_class);
  if (text_[start] == ' ') {
    const TextClass second = read(start + 1).text_class;
    if (is_word(second)) return run_end(start + 1, second);
  }
  // A run of spaces leaves its last character to the word that follows.
  size_t last = start;
  size_t end = start;
  for (Char c = first; c.text_class == TextClass::kSpace; c = read(end)) {
    last = end;
    end += c.n_bytes;
  }
  return is_word(read(end).text_class) && last > start ? last : end;
}

std::string_view SmolLmPreTokenizer::next() {
  if (position_ >= text_.size()) return {};
  const size_t start = position_;
  position_ = piece_end(start);
  return text_.substr(start, position_ - start);
}

}  // namespace ragcache
