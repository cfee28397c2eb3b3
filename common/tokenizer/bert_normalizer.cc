#include "common/tokenizer/bert_normalizer.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "common/check.h"
#include "common/tokenizer/unicode_classes.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

// The ideographs that BERT separates; Hangul, Hiragana and Katakana are written in words.
bool is_cjk(char32_t c) {
  struct Range {
    char32_t first;
    char32_t last;
  };
  constexpr Range kRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                               {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                               {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

const icu::Normalizer2& decomposition() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFDInstance(error);
  RAG_CHECK(U_SUCCESS(error));
  return *normalizer;
}

// Collects characters into words.
class WordList {
 public:
  void add(char32_t c) {
    if (text_class(c) == TextClass::kSpace) {
      end_word();
    } else if (bert_class(c) == BertClass::kPunctuation) {
      end_word();
      append_utf8(word_, c);
      end_word();
    } else {
      append_utf8(word_, c);
    }
  }
  std::vector<std::string> finish() {
    end_word();
    return std::move(words_);
  }

 private:
  void end_word() {
    if (!word_.empty()) words_.push_back(std::move(word_));
    word_.clear();
  }

  std::vector<std::string> words_;
  std::string word_;
};

}  // namespace

std::vector<std::string> bert_words(std::string_view text) {
  WordList words;
  const bool ascii =
      std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) {
    for (const char c : text) {
      if (bert_class(c) != BertClass::kDropped) words.add(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    return words.finish();
  }

  icu::UnicodeString cleaned;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = read_utf8(text, i);
    i += character.n_bytes;
    const char32_t c = character.code_point;
    if (bert_class(c) == BertClass::kDropped) continue;
    const bool cjk = is_cjk(c);
    if (cjk) cleaned.append(u' ');
    cleaned.append(static_cast<UChar32>(c));
    if (cjk) cleaned.append(u' ');
  }
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString decomposed = decomposition().normalize(cleaned, error);
  RAG_CHECK(U_SUCCESS(error));
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const UChar32 c = decomposed.char32At(i);
    if (bert_class(c) != BertClass::kMark) words.add(u_tolower(c));
  }
  return words.finish();
}

}  // namespace ragcache
