#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/vocabulary.h"

namespace ragcache {

// What a tokenizer_config.json adds to a tokenizer's own file.
struct SpecialSpellings {
  std::string bos;  // empty: prompts begin with none
  std::string eos;  // empty: none
};

void set_special_tokens(const SpecialSpellings& special, Vocabulary& vocabulary);

// Reads a tokenizer.json of PyPI tokenizers: byte-level BPE with one of the known splits, or BPE
// over characters with byte_fallback. INVALID_ARGUMENT names the field; UNIMPLEMENTED names what
// this project does not know: it never encodes by other rules than the file's.
absl::StatusOr<std::shared_ptr<const Tokenizer>> load_json_tokenizer(
    const std::string& path, const SpecialSpellings& special);

// Reads a tokenizer.model of SentencePiece: BPE without normalisation of text.
absl::StatusOr<std::shared_ptr<const Tokenizer>> load_sentence_piece_tokenizer(
    const std::string& path, const SpecialSpellings& special);

}  // namespace ragcache
