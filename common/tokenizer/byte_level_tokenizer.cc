#include "common/tokenizer/byte_level_tokenizer.h"

#include <array>
#include <string>
#include <utility>

#include "common/strings.h"
#include "common/tokenizer/byte_pair_encoder.h"
#include "common/tokenizer/normalization.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

// Byte-level vocabularies spell each byte as one printable character: GPT-2's alphabet keeps the
// printable bytes of Latin-1 and moves the others to U+0100 and up, in order.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

// What a vocabulary entry stands for: the bytes that its characters spell, or the entry itself if
// it uses others.
std::string bytes_of_spelling(std::string_view spelling) {
  static const absl::flat_hash_map<char32_t, char> bytes = [] {
    absl::flat_hash_map<char32_t, char> by_character;
    const std::array<char32_t, 256> alphabet = byte_alphabet();
    for (size_t byte = 0; byte < 256; ++byte)
      by_character[alphabet[byte]] = static_cast<char>(byte);
    return by_character;
  }();
  std::string spelled;
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Char character = read_utf8(spelling, i);
    const auto byte = bytes.find(character.code_point);
    if (!character.valid || byte == bytes.end()) return std::string(spelling);
    spelled += byte->second;
    i += character.n_bytes;
  }
  return spelled;
}

std::vector<std::string> bytes_of(const Vocabulary& vocabulary) {
  std::vector<std::string> bytes;
  for (const Vocabulary::Token& token : vocabulary.tokens) {
    bytes.push_back(token.kind == TokenKind::kText ? bytes_of_spelling(token.spelling)
                                                   : token.spelling);
  }
  return bytes;
}

class ByteLevelTokenizer final : public VocabularyTokenizer {
 public:
  ByteLevelTokenizer(const Vocabulary& vocabulary, const ByteLevelRules& rules)
      : VocabularyTokenizer(vocabulary, bytes_of(vocabulary),
                            str_cat("byte level ", name_of(rules.style),
                                    rules.ignore_merges ? " ignore_merges" : "",
                                    rules.composes_characters ? " nfc" : "")),
        rules_(rules) {
    const auto ids = ids_by_spelling(vocabulary);
    const std::array<char32_t, 256> alphabet = byte_alphabet();
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string spelling;
      append_utf8(spelling, alphabet[byte]);
      if (const auto found = ids.find(spelling); found != ids.end()) {
        encoder_.set_byte(static_cast<uint8_t>(byte), found->second);
      }
    }
    for (const Vocabulary::Merge& merge : vocabulary.merges) {
      encoder_.add_merge(merge.left, merge.right, merge.merged, merge.rank);
    }
    // Most pieces are one token: those need no merging.
    std::vector<std::pair<std::string_view, TokenId>> whole_pieces;
    std::vector<TokenId> merged;
    for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.tokens[id].kind != TokenKind::kText) continue;
      merged.clear();
      encoder_.encode(token_bytes(id), merged);
      if (rules.ignore_merges || merged == std::vector<TokenId>{id}) {
        whole_pieces.emplace_back(token_bytes(id), id);
      }
    }
    for (const auto& [piece, id] : whole_pieces) encoder_.set_whole_piece(piece, id);
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

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    std::string composed;
    if (rules_.composes_characters) text = composed = compose(text);
    PreTokenizer pieces(text, rules_.style);
    for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      encoder_.encode(piece, ids);
    }
  }

  // Constant after construction.
  const ByteLevelRules rules_;
  BytePairEncoder encoder_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_level_tokenizer(const Vocabulary& vocabulary,
                                                           const ByteLevelRules& rules) {
  return std::make_shared<ByteLevelTokenizer>(vocabulary, rules);
}

}  // namespace ragcache
