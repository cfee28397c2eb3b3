#include "common/tokenizer/character_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "common/strings.h"
#include "common/tokenizer/byte_pair_encoder.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

constexpr std::string_view kSpace = "\u2581";
constexpr char32_t kSpaceCharacter = 0x2581;

std::string with_spaces(std::string_view spelling) {
  std::string text;
  for (size_t i = 0; i < spelling.size();) {
    if (spelling.substr(i).starts_with(kSpace)) {
      text += ' ';
      i += kSpace.size();
    } else {
      text += spelling[i++];
    }
  }
  return text;
}

std::vector<std::string> bytes_of(const Vocabulary& vocabulary) {
  std::vector<std::string> bytes;
  for (const Vocabulary::Token& token : vocabulary.tokens) {
    switch (token.kind) {
      case TokenKind::kUnused:
        bytes.emplace_back();
        break;
      case TokenKind::kByte:
        bytes.emplace_back(1, static_cast<char>(byte_of_spelling(token.spelling).value_or(0)));
        break;
      case TokenKind::kText:
      case TokenKind::kAdded:
        bytes.push_back(with_spaces(token.spelling));
        break;
      case TokenKind::kMarkup:
      case TokenKind::kControl:
        bytes.push_back(token.spelling);
        break;
    }
  }
  return bytes;
}

// The code point of a text that is one character.
std::optional<char32_t> only_character(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const Utf8Char character = read_utf8(text, 0);
  if (!character.valid || character.n_bytes != text.size()) return std::nullopt;
  return character.code_point;
}

class CharacterTokenizer final : public VocabularyTokenizer {
 public:
  CharacterTokenizer(const Vocabulary& vocabulary, const CharacterRules& rules)
      : VocabularyTokenizer(vocabulary, bytes_of(vocabulary),
                            str_cat("characters", rules.space_prefix ? " space_prefix" : "",
                                    rules.joins_unknown ? " joins_unknown" : "")),
        rules_(rules),
        lone_characters_(vocabulary.lone_characters),
        unknown_(vocabulary.unknown) {
    byte_ids_.fill(BytePairEncoder::kNoToken);
    for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
      const Vocabulary::Token& token = vocabulary.tokens[id];
      if (token.kind == TokenKind::kByte) byte_ids_[*byte_of_spelling(token.spelling)] = id;
      if (token.kind != TokenKind::kText) continue;
      if (const auto character = only_character(token.spelling)) ids_.emplace(*character, id);
    }
    for (size_t i = 0; i < lone_characters_.size(); ++i) {
      ids_.emplace(*only_character(lone_characters_[i]),
                   static_cast<TokenId>(vocabulary.tokens.size() + i));
    }
    for (const Vocabulary::Merge& merge : vocabulary.merges) {
      encoder_.add_merge(merge.left, merge.right, merge.merged, merge.rank);
    }
  }

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    for (size_t position = 0; position < text.size();) {
      const AddedTokens::Match added = added_.find(text, position);
      encode_plain(text.substr(position, added.position - position), ids);
      if (added.n_bytes > 0) ids.push_back(added.id);
      position = added.position + added.n_bytes;
    }
    return ids;
  }

  bool space_prefix() const override { return rules_.space_prefix; }

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < text.size();) {
      const Utf8Char character = read_utf8(text, i);
      const std::string_view bytes = text.substr(i, character.n_bytes);
      i += character.n_bytes;
      const char32_t read = character.code_point == U' ' ? kSpaceCharacter : character.code_point;
      const auto found = character.valid ? ids_.find(read) : ids_.end();
      if (found != ids_.end()) {
        tokens.push_back(found->second);
      } else {
        append_unknown(read == kSpaceCharacter ? kSpace : bytes, tokens);
      }
    }
    encoder_.merge(tokens);
    for (const TokenId token : tokens) {
      if (token < vocabulary_size()) {
        ids.push_back(token);
      } else {
        append_unknown(lone_characters_[token - vocabulary_size()], ids);
      }
    }
  }

  // Never part of a merge.
  void append_unknown(std::string_view bytes, std::vector<TokenId>& ids) const {
    const auto id_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    const bool as_bytes = std::ranges::none_of(
        bytes, [&](char byte) { return id_of(byte) == BytePairEncoder::kNoToken; });
    if (as_bytes) {
      for (const char byte : bytes) ids.push_back(id_of(byte));
    } else if (unknown_ && !(rules_.joins_unknown && !ids.empty() && ids.back() == *unknown_)) {
      ids.push_back(*unknown_);
    }
  }

  // Constant after construction.
  const CharacterRules rules_;
  const std::vector<std::string> lone_characters_;
  const std::optional<TokenId> unknown_;
  absl::flat_hash_map<char32_t, TokenId> ids_;
  std::array<TokenId, 256> byte_ids_;
  BytePairEncoder encoder_;
};

}  // namespace

std::optional<uint8_t> byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>') {
    return std::nullopt;
  }
  uint8_t byte = 0;
  const char* const end = spelling.data() + 5;
  const auto [stop, error] = std::from_chars(spelling.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return byte;
}

std::shared_ptr<const Tokenizer> make_character_tokenizer(const Vocabulary& vocabulary,
                                                          const CharacterRules& rules) {
  return std::make_shared<CharacterTokenizer>(vocabulary, rules);
}

absl::Status add_merges_by_score(std::span<const float> scores, Vocabulary& vocabulary) {
  auto parts = ids_by_spelling(vocabulary);
  const size_t n_tokens = vocabulary.tokens.size();
  std::set<float, std::greater<>> distinct;
  for (TokenId id = 0; id < n_tokens; ++id) {
    const auto& [spelling, kind] = vocabulary.tokens[id];
    if (kind != TokenKind::kText) continue;
    if (!std::isfinite(scores[id])) {
      return absl::InvalidArgumentError(str_cat("the score of token ", id, " is not finite"));
    }
    if (spelling.size() > Vocabulary::kSpellingBytesMax) {
      return absl::InvalidArgumentError(str_cat("token ", id, " has ", spelling.size(),
                                                " bytes, more than ",
                                                Vocabulary::kSpellingBytesMax));
    }
    distinct.insert(scores[id]);
    for (size_t i = 0; i < spelling.size();) {
      const Utf8Char character = read_utf8(spelling, i);
      std::string alone = spelling.substr(i, character.n_bytes);
      i += character.n_bytes;
      const auto next = static_cast<TokenId>(n_tokens + vocabulary.lone_characters.size());
      if (character.valid && parts.emplace(alone, next).second) {
        vocabulary.lone_characters.push_back(std::move(alone));
      }
    }
  }
  absl::flat_hash_map<float, uint32_t> rank_of_score;
  for (const float score : distinct) {
    rank_of_score.emplace(score, static_cast<uint32_t>(rank_of_score.size()));
  }
  for (TokenId id = 0; id < n_tokens; ++id) {
    const auto& [spelling, kind] = vocabulary.tokens[id];
    if (kind != TokenKind::kText) continue;
    for (size_t cut = 1; cut < spelling.size(); ++cut) {
      const auto left = parts.find(absl::string_view(spelling).substr(0, cut));
      if (left == parts.end()) continue;
      const auto right = parts.find(absl::string_view(spelling).substr(cut));
      if (right == parts.end()) continue;
      vocabulary.merges.push_back({left->second, right->second, id, rank_of_score.at(scores[id])});
    }
  }
  return absl::OkStatus();
}

}  // namespace ragcache
