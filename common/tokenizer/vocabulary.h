#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

enum class TokenKind : uint8_t {
  kUnused,   // never given, has no bytes
  kText,     // what merging gives
  kByte,     // one byte of a character that the vocabulary lacks, spelled <0x0A>
  kAdded,    // found in text before anything is merged
  kMarkup,   // added, but spelled like a tag: text never gives it
  kControl,  // structure of prompts: text never gives it, answers do not show it
};

// A byte-pair vocabulary as a model's file has it, whatever the file's format.
struct Vocabulary {
  // Far above real ones (256 Ki): what a hostile file may ask for.
  static constexpr size_t kTokensMax = 1 << 22;
  // The spelling of a token that is made of parts; real ones have a few dozen bytes.
  static constexpr size_t kSpellingBytesMax = 1024;

  struct Token {
    std::string spelling;
    TokenKind kind = TokenKind::kUnused;
  };
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId merged;
    uint32_t rank;
  };

  std::vector<Token> tokens;
  std::vector<Merge> merges;
  // Characters that tokens are made of but that are no tokens; their ids follow the tokens'.
  std::vector<std::string> lone_characters;
  std::optional<TokenId> bos;  // if prompts begin with it
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
};

// The kind of a token that a file lists as added to the vocabulary. One that is spelled like a tag
// (<think>, [INST]) gets meaning from where it stands, so a text that merely spells it must not
// give it.
TokenKind kind_of_added(std::string_view spelling);

// The tokens of `vocabulary` by spelling, of those kinds that text can give.
absl::flat_hash_map<std::string, TokenId> ids_by_spelling(const Vocabulary& vocabulary);

// Finds added tokens in text: the leftmost, of several the longest.
class AddedTokens {
 public:
  struct Match {
    size_t position;  // text.size() if there is none
    size_t n_bytes;
    TokenId id;
  };

  // `spelled`: what the token stands for in a text.
  void add(std::string spelled, TokenId id);
  Match find(std::string_view text, size_t position) const;

 private:
  struct Token {
    std::string text;
    TokenId id;
  };
  std::vector<Token> by_first_byte_[256];  // longest first
};

// What all byte-pair tokenizers share: the table of tokens. Constant after construction.
class VocabularyTokenizer : public Tokenizer {
 public:
  std::optional<TokenId> special_token(std::string_view spelling) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override { return id < special_.size() && special_[id]; }
  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(bytes_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  const Digest& fingerprint() const override { return fingerprint_; }

 protected:
  // `bytes`: what each token stands for; `rules`: all else that decides about ids.
  VocabularyTokenizer(const Vocabulary& vocabulary, std::vector<std::string> bytes,
                      std::string_view rules);

  AddedTokens added_;

 private:
  const std::vector<std::string> bytes_;
  std::vector<bool> special_;
  absl::flat_hash_map<std::string, TokenId> special_ids_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  Digest fingerprint_;
};

}  // namespace ragcache
