#include "common/tokenizer/pre_tokenizer.h"

#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

// U+017F, which is an s to expressions that ignore case.
constexpr std::string_view kLongS = "\u017f";

}  // namespace

std::string_view name_of(PreTokenizerStyle style) {
  switch (style) {
    case PreTokenizerStyle::kGpt2:
      return "gpt-2";
    case PreTokenizerStyle::kSmolLm:
      return "smollm";
    case PreTokenizerStyle::kLlama3:
      return "llama-bpe";
    case PreTokenizerStyle::kQwen2:
      return "qwen2";
  }
  return "";
}

PreTokenizer::Char PreTokenizer::read(size_t position) const {
  if (position >= text_.size()) return {TextClass::kOther, 0};
  const Utf8Char character = read_utf8(text_, position);
  return {text_class(character.code_point), character.n_bytes};
}

bool PreTokenizer::is_newline(size_t position) const {
  return position < text_.size() && (text_[position] == '\n' || text_[position] == '\r');
}

size_t PreTokenizer::run_end(size_t position, TextClass text_class) const {
  for (Char c = read(position); c.is(text_class); c = read(position)) position += c.n_bytes;
  return position;
}

size_t PreTokenizer::contraction_end(size_t start, bool ignore_case) const {
  if (text_[start] != '\'') return start;
  const std::string_view rest = text_.substr(start + 1);
  for (const std::string_view suffix : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (rest.size() < suffix.size()) continue;
    bool equal = true;
    for (size_t i = 0; i < suffix.size(); ++i) {
      equal &= (ignore_case ? lower(rest[i]) : rest[i]) == suffix[i];
    }
    if (equal) return start + 1 + suffix.size();
  }
  if (ignore_case && rest.starts_with(kLongS)) return start + 1 + kLongS.size();
  return start;
}

size_t PreTokenizer::gpt2_piece_end(size_t start) const {
  if (const size_t end = contraction_end(start, /*ignore_case=*/false); end > start) return end;
  const bool numbers_alone = style_ == PreTokenizerStyle::kSmolLm;
  const auto in_runs = [&](const Char& c) {
    return c.is_word() || (c.is(TextClass::kNumber) && !numbers_alone);
  };
  const Char first = read(start);
  if (first.is(TextClass::kNumber) && numbers_alone) return start + first.n_bytes;
  if (in_runs(first)) return run_end(start, first.text_class);
  if (text_[start] == ' ') {
    const Char second = read(start + 1);
    if (in_runs(second)) return run_end(start + 1, second.text_class);
  }
  // A run of spaces leaves its last character to what follows.
  size_t last = start;
  size_t end = start;
  for (Char c = first; c.is(TextClass::kSpace); c = read(end)) {
    last = end;
    end += c.n_bytes;
  }
  return in_runs(read(end)) && last > start ? last : end;
}

size_t PreTokenizer::llama3_piece_end(size_t start, int numbers_max) const {
  if (const size_t end = contraction_end(start, /*ignore_case=*/true); end > start) return end;
  const Char first = read(start);
  if (first.is(TextClass::kLetter)) return run_end(start, TextClass::kLetter);
  if (first.is(TextClass::kNumber)) {
    size_t end = start;
    Char c = first;
    for (int n = 0; n < numbers_max && c.is(TextClass::kNumber); ++n, c = read(end)) {
      end += c.n_bytes;
    }
    return end;
  }
  const size_t second = start + first.n_bytes;
  if (!is_newline(start) && read(second).is(TextClass::kLetter)) {
    return run_end(second, TextClass::kLetter);
  }
  const size_t symbols = text_[start] == ' ' ? second : start;
  if (read(symbols).is(TextClass::kOther)) {
    size_t end = run_end(symbols, TextClass::kOther);
    while (is_newline(end)) ++end;
    return end;
  }
  // A run of spaces ends behind its last line end, or leaves its last character to what follows.
  size_t last = start;
  size_t end = start;
  size_t line_end = start;
  for (Char c = first; c.is(TextClass::kSpace); c = read(end)) {
    last = end;
    end += c.n_bytes;
    if (is_newline(last)) line_end = end;
  }
  if (line_end > start) return line_end;
  return end < text_.size() && last > start ? last : end;
}

std::string_view PreTokenizer::next() {
  if (position_ >= text_.size()) return {};
  const size_t start = position_;
  switch (style_) {
    case PreTokenizerStyle::kGpt2:
    case PreTokenizerStyle::kSmolLm:
      position_ = gpt2_piece_end(start);
      break;
    case PreTokenizerStyle::kLlama3:
      position_ = llama3_piece_end(start, 3);
      break;
    case PreTokenizerStyle::kQwen2:
      position_ = llama3_piece_end(start, 1);
      break;
  }
  return text_.substr(start, position_ - start);
}

}  // namespace ragcache
