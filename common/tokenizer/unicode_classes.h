#pragma once

#include <cstdint>

namespace ragcache {

// The classes of characters that tokenizers cut text by: those of PyPI tokenizers, whatever the
// system's ICU knows, so that the same text gives the same ids everywhere.

// For byte-level BPE: \p{L}, \p{N}, \s and the rest.
enum class TextClass : uint8_t { kOther, kLetter, kNumber, kSpace };
TextClass text_class(char32_t code_point);

// For BERT: control characters and the like (dropped), accents (stripped), punctuation. Spaces,
// tab, line feed and carriage return are kOther.
enum class BertClass : uint8_t { kOther, kDropped, kMark, kPunctuation };
BertClass bert_class(char32_t code_point);

}  // namespace ragcache
