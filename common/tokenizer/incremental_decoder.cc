#include "common/tokenizer/incremental_decoder.h"

#include <utility>

#include "common/tokenizer/utf8.h"

namespace ragcache {

IncrementalDecoder::IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

std::string IncrementalDecoder::push(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (!tokenizer_->is_special(id)) pending_ += tokenizer_->token_bytes(id);
  }
  std::string text;
  size_t position = 0;
  while (position < pending_.size()) {
    const Utf8Char character = read_utf8(pending_, position);
    if (character.incomplete) break;
    append_utf8(text, character.code_point);
    position += character.n_bytes;
  }
  pending_.erase(0, position);
  return text;
}

std::string IncrementalDecoder::finish() {
  std::string text;
  if (!pending_.empty()) append_utf8(text, kReplacementCharacter);
  pending_.clear();
  return text;
}

}  // namespace ragcache
