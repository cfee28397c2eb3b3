#pragma once

#include <memory>

#include "common/tokenizer/vocabulary.h"

namespace ragcache {

// SentencePiece's BPE (LLaMA 2, Mistral), which is that of tokenizer.json with byte_fallback too: a
// text is one piece, each of its characters a token to start with, the space spelled U+2581. A
// character that the vocabulary lacks is given as its bytes, or without byte tokens as the unknown
// token. Bytes that are no UTF-8 are given as bytes.
struct CharacterRules {
  bool space_prefix = true;
  bool joins_unknown = true;  // several unknown characters in a row are one token
};

// REQUIRES: every id of a merge is that of a token or of a lone character.
std::shared_ptr<const Tokenizer> make_character_tokenizer(const Vocabulary& vocabulary,
                                                          const CharacterRules& rules);

// SentencePiece has no list of merges: two tokens merge if together they spell a third, the one
// with the highest score first. Fills merges and lone_characters.
// scores: [tokens]. INVALID_ARGUMENT for scores that have no order and spellings too long.
absl::Status add_merges_by_score(std::span<const float> scores, Vocabulary& vocabulary);

// The byte that a token spelled <0x0A> stands for.
std::optional<uint8_t> byte_of_spelling(std::string_view spelling);

}  // namespace ragcache
