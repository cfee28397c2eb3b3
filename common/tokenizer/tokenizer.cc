#include "common/tokenizer/tokenizer.h"

namespace ragcache {

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

}  // namespace ragcache
