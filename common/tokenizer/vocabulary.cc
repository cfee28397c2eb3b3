#include "common/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "common/strings.h"

namespace ragcache {
namespace {

Digest digest_of(const Vocabulary& vocabulary, std::string_view rules) {
  Sha256 digest;
  const auto add = [&](std::string_view field) {
    digest.update(str_cat(field.size(), ":")).update(field);
  };
  add(rules);
  for (const Vocabulary::Token& token : vocabulary.tokens) {
    add(token.spelling);
    digest.update(str_cat(static_cast<int>(token.kind)));
  }
  std::vector<uint32_t> merges;
  for (const Vocabulary::Merge& merge : vocabulary.merges) {
    merges.insert(merges.end(), {merge.left, merge.right, merge.merged, merge.rank});
  }
  digest.update(digest_of_tokens(merges));
  return digest.finish();
}

}  // namespace

TokenKind kind_of_added(std::string_view spelling) {
  const bool tag = spelling.size() > 2 && ((spelling.starts_with('<') && spelling.ends_with('>')) ||
                                           (spelling.starts_with('[') && spelling.ends_with(']')));
  return tag ? TokenKind::kMarkup : TokenKind::kAdded;
}

absl::flat_hash_map<std::string, TokenId> ids_by_spelling(const Vocabulary& vocabulary) {
  absl::flat_hash_map<std::string, TokenId> ids;
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].kind == TokenKind::kText) {
      ids.emplace(vocabulary.tokens[id].spelling, id);
    }
  }
  return ids;
}

void AddedTokens::add(std::string spelled, TokenId id) {
  if (spelled.empty()) return;
  std::vector<Token>& tokens = by_first_byte_[static_cast<uint8_t>(spelled[0])];
  const auto longer = [&](const Token& other) { return other.text.size() >= spelled.size(); };
  tokens.insert(std::ranges::find_if_not(tokens, longer), {std::move(spelled), id});
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t position) const {
  for (; position < text.size(); ++position) {
    for (const Token& token : by_first_byte_[static_cast<uint8_t>(text[position])]) {
      if (text.substr(position).starts_with(token.text)) {
        return {position, token.text.size(), token.id};
      }
    }
  }
  return {text.size(), 0, 0};
}

VocabularyTokenizer::VocabularyTokenizer(const Vocabulary& vocabulary,
                                         std::vector<std::string> bytes, std::string_view rules)
    : bytes_(std::move(bytes)),
      bos_(vocabulary.bos),
      eos_(vocabulary.eos),
      fingerprint_(digest_of(vocabulary, rules)) {
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenKind kind = vocabulary.tokens[id].kind;
    special_.push_back(kind == TokenKind::kControl);
    if (kind == TokenKind::kControl || kind == TokenKind::kMarkup) {
      special_ids_.emplace(vocabulary.tokens[id].spelling, id);
    }
    if (kind == TokenKind::kAdded) added_.add(bytes_[id], id);
  }
}

std::optional<TokenId> VocabularyTokenizer::special_token(std::string_view spelling) const {
  const auto found = special_ids_.find(std::string(spelling));
  if (found == special_ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view VocabularyTokenizer::token_bytes(TokenId id) const {
  return id < bytes_.size() ? std::string_view(bytes_[id]) : std::string_view();
}

}  // namespace ragcache
