#include "common/tokenizer/unicode_classes.h"

#include <algorithm>
#include <array>

#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

template <typename Class>
struct Range {
  char32_t first;
  char32_t last;
  Class value;
};

#include "common/tokenizer/unicode_tables.inc"

template <typename Table>
auto find_class(const Table& table, char32_t code_point) {
  const auto range = std::ranges::lower_bound(table, code_point, {}, &Table::value_type::last);
  using Class = decltype(range->value);
  return range != table.end() && range->first <= code_point ? range->value : Class::kOther;
}

constexpr std::array<TextClass, 0x80> kAsciiTextClasses = [] {
  std::array<TextClass, 0x80> classes{};
  for (char32_t c = 0; c < 0x80; ++c) {
    if ((c | 0x20) >= U'a' && (c | 0x20) <= U'z') classes[c] = TextClass::kLetter;
    if (c >= U'0' && c <= U'9') classes[c] = TextClass::kNumber;
    if (c == U' ' || (c >= U'\t' && c <= U'\r')) classes[c] = TextClass::kSpace;
  }
  return classes;
}();

constexpr std::array<BertClass, 0x80> kAsciiBertClasses = [] {
  std::array<BertClass, 0x80> classes{};
  for (char32_t c = 0; c < 0x80; ++c) {
    // All ASCII symbols count as punctuation, also those that Unicode calls mathematical.
    if (c > U' ' && kAsciiTextClasses[c] == TextClass::kOther) {
      classes[c] = BertClass::kPunctuation;
    }
    const bool space = c == U' ' || c == U'\t' || c == U'\n' || c == U'\r';
    if ((c < U' ' || c == 0x7F) && !space) classes[c] = BertClass::kDropped;
  }
  return classes;
}();

}  // namespace

TextClass text_class(char32_t code_point) {
  if (code_point < 0x80) return kAsciiTextClasses[code_point];
  return find_class(kTextClasses, code_point);
}

BertClass bert_class(char32_t code_point) {
  if (code_point < 0x80) return kAsciiBertClasses[code_point];
  // What an invalid byte decodes to.
  if (code_point == kReplacementCharacter) return BertClass::kDropped;
  return find_class(kBertClasses, code_point);
}

}  // namespace ragcache
