#include <map>

#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/byte_level_tokenizer.h"
#include "common/tokenizer/character_tokenizer.h"

namespace ragcache {
namespace {

// tokenizer.ggml.token_type, as llama.cpp numbers them.
enum class GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

TokenKind kind_of(GgufTokenType type, std::string_view spelling) {
  switch (type) {
    case GgufTokenType::kNormal:
      return TokenKind::kText;
    case GgufTokenType::kByte:
      return byte_of_spelling(spelling) ? TokenKind::kByte : TokenKind::kText;
    case GgufTokenType::kUserDefined:
      return kind_of_added(spelling);
    case GgufTokenType::kUnknown:
    case GgufTokenType::kControl:
      return TokenKind::kControl;
    case GgufTokenType::kUnused:
      break;
  }
  return TokenKind::kUnused;
}

absl::StatusOr<std::optional<TokenId>> read_token_id(const GgufFile& file, std::string_view key,
                                                     size_t n_tokens) {
  const absl::StatusOr<uint64_t> id = file.get_uint(key);
  if (absl::IsNotFound(id.status())) return std::nullopt;
  RAG_RETURN_IF_ERROR(id.status());
  if (*id >= n_tokens) {
    return absl::InvalidArgumentError(
        str_cat(key, " is ", *id, ", beyond the vocabulary of ", n_tokens));
  }
  return static_cast<TokenId>(*id);
}

absl::StatusOr<bool> read_flag(const GgufFile& file, std::string_view key, bool absent) {
  const absl::StatusOr<bool> flag = file.get_bool(key);
  return absl::IsNotFound(flag.status()) ? absent : flag;
}

// `adds_bos`: whether prompts begin with BOS where the file does not say.
absl::StatusOr<Vocabulary> read_vocabulary(const GgufFile& file, bool adds_bos) {
  RAG_ASSIGN_OR_RETURN(const auto spellings, file.get_strings("tokenizer.ggml.tokens"));
  RAG_ASSIGN_OR_RETURN(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  const size_t n_tokens = spellings.size();
  if (n_tokens == 0 || n_tokens > Vocabulary::kTokensMax) {
    return absl::InvalidArgumentError(str_cat("tokenizer.ggml.tokens has ", n_tokens,
                                              " entries, outside 1 to ", Vocabulary::kTokensMax));
  }
  if (types.size() != n_tokens) {
    return absl::InvalidArgumentError(str_cat("tokenizer.ggml.token_type has ", types.size(),
                                              " entries, tokenizer.ggml.tokens has ", n_tokens));
  }
  Vocabulary vocabulary;
  absl::flat_hash_map<std::string, TokenId> seen;
  for (TokenId id = 0; id < n_tokens; ++id) {
    const auto type = static_cast<GgufTokenType>(types[id]);
    const TokenKind kind = kind_of(type, spellings[id]);
    if (kind == TokenKind::kText && !seen.emplace(spellings[id], id).second) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.tokens has the entry ", id, " twice"));
    }
    if (type == GgufTokenType::kUnknown) vocabulary.unknown = id;
    vocabulary.tokens.push_back({spellings[id], kind});
  }
  RAG_ASSIGN_OR_RETURN(vocabulary.eos,
                       read_token_id(file, "tokenizer.ggml.eos_token_id", n_tokens));
  RAG_ASSIGN_OR_RETURN(adds_bos, read_flag(file, "tokenizer.ggml.add_bos_token", adds_bos));
  if (adds_bos) {
    RAG_ASSIGN_OR_RETURN(vocabulary.bos,
                         read_token_id(file, "tokenizer.ggml.bos_token_id", n_tokens));
  }
  return vocabulary;
}

absl::Status read_merges(const GgufFile& file, Vocabulary& vocabulary) {
  RAG_ASSIGN_OR_RETURN(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  const auto ids = ids_by_spelling(vocabulary);
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ');
    if (space == std::string::npos) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.merges entry ", i, " is not two tokens"));
    }
    const std::string left_spelling = merges[i].substr(0, space);
    const std::string right_spelling = merges[i].substr(space + 1);
    const auto left = ids.find(left_spelling);
    const auto right = ids.find(right_spelling);
    const auto merged = ids.find(left_spelling + right_spelling);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return absl::InvalidArgumentError(
          str_cat("tokenizer.ggml.merges entry ", i, " uses a token that the vocabulary lacks"));
    }
    vocabulary.merges.push_back(
        {left->second, right->second, merged->second, static_cast<uint32_t>(i)});
  }
  return absl::OkStatus();
}

absl::StatusOr<ByteLevelRules> byte_level_rules(const std::string& pre) {
  static const std::map<std::string, ByteLevelRules> kRules = {
      {"smollm", {PreTokenizerStyle::kSmolLm}},
      {"gpt-2", {PreTokenizerStyle::kGpt2}},
      {"llama-bpe", {PreTokenizerStyle::kLlama3, /*ignore_merges=*/true}},
      {"qwen2", {PreTokenizerStyle::kQwen2}}};
  const auto found = kRules.find(pre);
  if (found != kRules.end()) return found->second;
  return absl::UnimplementedError(str_cat(
      "tokenizer.ggml.pre is ", pre, "; only smollm, gpt-2, llama-bpe and qwen2 are supported"));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_byte_level(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const std::string pre, file.get_string("tokenizer.ggml.pre"));
  RAG_ASSIGN_OR_RETURN(const ByteLevelRules rules, byte_level_rules(pre));
  RAG_ASSIGN_OR_RETURN(Vocabulary vocabulary, read_vocabulary(file, /*adds_bos=*/false));
  RAG_RETURN_IF_ERROR(read_merges(file, vocabulary));
  return make_byte_level_tokenizer(vocabulary, rules);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_sentence_piece(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(Vocabulary vocabulary, read_vocabulary(file, /*adds_bos=*/true));
  RAG_ASSIGN_OR_RETURN(const auto scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores.size() != vocabulary.tokens.size()) {
    return absl::InvalidArgumentError(str_cat("tokenizer.ggml.scores has ", scores.size(),
                                              " entries, tokenizer.ggml.tokens has ",
                                              vocabulary.tokens.size()));
  }
  RAG_RETURN_IF_ERROR(
      add_merges_by_score(std::vector<float>(scores.begin(), scores.end()), vocabulary));
  CharacterRules rules;
  RAG_ASSIGN_OR_RETURN(rules.space_prefix,
                       read_flag(file, "tokenizer.ggml.add_space_prefix", true));
  return make_character_tokenizer(vocabulary, rules);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const GgufFile& file) {
  const auto tokenizer = [&]() -> absl::StatusOr<std::shared_ptr<const Tokenizer>> {
    RAG_ASSIGN_OR_RETURN(const std::string model, file.get_string("tokenizer.ggml.model"));
    if (model == "gpt2") return load_byte_level(file);
    if (model == "llama") return load_sentence_piece(file);
    return absl::UnimplementedError(
        str_cat("tokenizer.ggml.model is ", model, "; only gpt2 and llama are supported"));
  }();
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(), str_cat("the tokenizer of ", file.path(), ": ",
                                                         tokenizer.status().message()));
}

}  // namespace ragcache
