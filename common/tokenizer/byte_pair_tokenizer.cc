#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/byte_pair_encoder.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

// tokenizer.ggml.token_type, as llama.cpp numbers them.
enum class TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr size_t kVocabularyMax = 1 << 22;

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

void update_sized(Sha256& digest, std::string_view field) {
  digest.update(str_cat(field.size(), ":")).update(field);
}

class BytePairTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> load(const GgufFile& file);

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    SmolLmPreTokenizer pieces(text);
    for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      encoder_.encode(piece, ids);
    }
    return ids;
  }

  std::optional<TokenId> special_token(std::string_view spelling) const override {
    const auto found = special_ids_.find(std::string(spelling));
    if (found == special_ids_.end()) return std::nullopt;
    return found->second;
  }

  std::string_view token_bytes(TokenId id) const override {
    return id < bytes_.size() ? std::string_view(bytes_[id]) : std::string_view();
  }

  bool is_special(TokenId id) const override { return id < special_.size() && special_[id]; }
  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(bytes_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  const Digest& fingerprint() const override { return fingerprint_; }

 private:
  absl::Status read_vocabulary(const GgufFile& file);
  absl::Status read_merges(const GgufFile& file);
  absl::StatusOr<std::optional<TokenId>> read_token_id(const GgufFile& file,
                                                       std::string_view key) const;

  // Constant after load().
  std::vector<std::string> bytes_;
  std::vector<bool> special_;
  absl::flat_hash_map<std::string, TokenId> ids_by_spelling_;  // empty after load()
  absl::flat_hash_map<std::string, TokenId> special_ids_;
  BytePairEncoder encoder_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  Digest fingerprint_;
};

absl::Status BytePairTokenizer::read_vocabulary(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const auto spellings, file.get_strings("tokenizer.ggml.tokens"));
  RAG_ASSIGN_OR_RETURN(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  if (spellings.empty() || spellings.size() > kVocabularyMax) {
    return absl::InvalidArgumentError(str_cat("tokenizer.ggml.tokens has ", spellings.size(),
                                              " entries, outside 1 to ", kVocabularyMax));
  }
  if (types.size() != spellings.size()) {
    return absl::InvalidArgumentError(str_cat("tokenizer.ggml.token_type has ", types.size(),
                                              " entries, tokenizer.ggml.tokens has ",
                                              spellings.size()));
  }
  for (TokenId id = 0; id < spellings.size(); ++id) {
    const auto type = static_cast<TokenType>(types[id]);
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined;
    special_.push_back(special);
    if (special) {
      special_ids_.emplace(spellings[id], id);
      bytes_.push_back(spellings[id]);
      continue;
    }
    bytes_.push_back(bytes_of_spelling(spellings[id]));
    if (!ids_by_spelling_.emplace(spellings[id], id).second) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.tokens has the entry ", id, " twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status BytePairTokenizer::read_merges(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  const std::array<char32_t, 256> alphabet = byte_alphabet();
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(spelling, alphabet[byte]);
    const auto found = ids_by_spelling_.find(spelling);
    if (found != ids_by_spelling_.end()) {
      encoder_.set_byte(static_cast<uint8_t>(byte), found->second);
    }
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ');
    if (space == std::string::npos) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.merges entry ", i, " is not two tokens"));
    }
    const std::string left_spelling = merges[i].substr(0, space);
    const std::string right_spelling = merges[i].substr(space + 1);
    const auto left = ids_by_spelling_.find(left_spelling);
    const auto right = ids_by_spelling_.find(right_spelling);
    const auto merged = ids_by_spelling_.find(left_spelling + right_spelling);
    if (left == ids_by_spelling_.end() || right == ids_by_spelling_.end() ||
        merged == ids_by_spelling_.end()) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.merges entry ", i, " uses a token that the vocabulary lacks"));
    }
    encoder_.add_merge(left->second, right->second, merged->second);
  }
  for (TokenId id = 0; id < bytes_.size(); ++id) {
    if (!special_[id]) encoder_.add_whole_piece(bytes_[id], id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TokenId>> BytePairTokenizer::read_token_id(
    const GgufFile& file, std::string_view key) const {
  const absl::StatusOr<uint64_t> id = file.get_uint(key);
  if (absl::IsNotFound(id.status())) return std::nullopt;
  RAG_RETURN_IF_ERROR(id.status());
  if (*id >= bytes_.size()) {
    return absl::InvalidArgumentError(
        str_cat(key, " is ", *id, ", beyond the vocabulary of ", bytes_.size()));
  }
  return static_cast<TokenId>(*id);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> BytePairTokenizer::load(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const std::string model, file.get_string("tokenizer.ggml.model"));
  RAG_ASSIGN_OR_RETURN(const std::string pre, file.get_string("tokenizer.ggml.pre"));
  if (model != "gpt2") {
    return absl::InvalidArgumentError(
        str_cat("tokenizer.ggml.model is ", model, "; only gpt2 is supported"));
  }
  if (pre != "smollm") {
    return absl::InvalidArgumentError(
        str_cat("tokenizer.ggml.pre is ", pre, "; only smollm is supported"));
  }
  auto tokenizer = std::make_shared<BytePairTokenizer>();
  RAG_RETURN_IF_ERROR(tokenizer->read_vocabulary(file));
  RAG_RETURN_IF_ERROR(tokenizer->read_merges(file));
  RAG_ASSIGN_OR_RETURN(tokenizer->eos_,
                       tokenizer->read_token_id(file, "tokenizer.ggml.eos_token_id"));
  const absl::StatusOr<bool> add_bos = file.get_bool("tokenizer.ggml.add_bos_token");
  if (add_bos.ok() && *add_bos) {
    RAG_ASSIGN_OR_RETURN(tokenizer->bos_,
                         tokenizer->read_token_id(file, "tokenizer.ggml.bos_token_id"));
  }

  Sha256 digest;
  for (const std::string_view field : {std::string_view(model), std::string_view(pre)}) {
    update_sized(digest, field);
  }
  for (const std::string& bytes : tokenizer->bytes_) update_sized(digest, bytes);
  for (const bool special : tokenizer->special_) digest.update(special ? "s" : "n");
  RAG_ASSIGN_OR_RETURN(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  for (const std::string& merge : merges) update_sized(digest, merge);
  tokenizer->fingerprint_ = digest.finish();
  tokenizer->ids_by_spelling_ = {};
  return tokenizer;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const GgufFile& file) {
  const auto tokenizer = BytePairTokenizer::load(file);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(), str_cat("the tokenizer of ", file.path(), ": ",
                                                         tokenizer.status().message()));
}

}  // namespace ragcache
