#pragma once

#include <memory>

#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace ragcache {

// Byte-level BPE (GPT-2, LLaMA 3, Qwen2, SmolLM): a text is cut into pieces, and each byte of a
// piece is a token to start with.
struct ByteLevelRules {
  PreTokenizerStyle style;
  bool ignore_merges = false;        // a piece that is a token is that token
  bool composes_characters = false;  // the text is brought into NFC first
};

// REQUIRES: every id of a merge is that of a token.
std::shared_ptr<const Tokenizer> make_byte_level_tokenizer(const Vocabulary& vocabulary,
                                                           const ByteLevelRules& rules);

}  // namespace ragcache
