#include <nlohmann/json.hpp>

#include "common/json/json_object.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/byte_level_tokenizer.h"
#include "common/tokenizer/character_tokenizer.h"
#include "common/tokenizer/folder_formats.h"

namespace ragcache {
namespace {

using Json = nlohmann::json;

constexpr size_t kMergesMax = 1 << 24;
constexpr std::string_view kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

absl::Status invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// The beginning of a value, for messages.
std::string shown(const Json& value) {
  constexpr size_t kShownMax = 160;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

bool is_flag(const Json& object, const char* field, bool wanted, bool absent) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return wanted == absent;
  return found->is_boolean() && found->get<bool>() == wanted;
}

bool is_text(const Json& object, const char* field, std::string_view wanted) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() &&
         found->get_ref<const std::string&>() == wanted;
}

// A normalizer or pre-tokenizer as the list of its steps.
std::vector<Json> steps_of(const Json& root, const char* field, const char* list) {
  const auto found = root.find(field);
  if (found == root.end() || found->is_null()) return {};
  if (found->is_object() && is_text(*found, "type", "Sequence") && found->contains(list) &&
      (*found)[list].is_array()) {
    return {(*found)[list].begin(), (*found)[list].end()};
  }
  return {*found};
}

absl::Status unknown_steps(const Json& root, const char* field) {
  return absl::UnimplementedError(
      str_cat(field, " is none of those known: ", shown(root.value(field, Json()))));
}

bool is_byte_level(const Json& step, bool splits) {
  return step.is_object() && is_text(step, "type", "ByteLevel") &&
         is_flag(step, "add_prefix_space", false, true) && is_flag(step, "use_regex", splits, true);
}

bool is_split(const Json& step, std::string_view expression) {
  if (!step.is_object() || !is_text(step, "type", "Split")) return false;
  const auto pattern = step.find("pattern");
  return pattern != step.end() && pattern->is_object() && is_text(*pattern, "Regex", expression) &&
         is_text(step, "behavior", "Isolated") && is_flag(step, "invert", false, false);
}

absl::StatusOr<ByteLevelRules> read_byte_level_rules(const Json& root, const Json& model) {
  ByteLevelRules rules{};
  const std::vector<Json> steps = steps_of(root, "pre_tokenizer", "pretokenizers");
  if (steps.size() == 1 && is_byte_level(steps[0], true)) {
    rules.style = PreTokenizerStyle::kGpt2;
  } else if (steps.size() == 2 && steps[0].is_object() && is_text(steps[0], "type", "Digits") &&
             is_flag(steps[0], "individual_digits", true, false) && is_byte_level(steps[1], true)) {
    rules.style = PreTokenizerStyle::kSmolLm;
  } else if (steps.size() == 2 && is_split(steps[0], kLlama3Split) &&
             is_byte_level(steps[1], false)) {
    rules.style = PreTokenizerStyle::kLlama3;
  } else if (steps.size() == 2 && is_split(steps[0], kQwen2Split) &&
             is_byte_level(steps[1], false)) {
    rules.style = PreTokenizerStyle::kQwen2;
  } else {
    return unknown_steps(root, "pre_tokenizer");
  }
  const std::vector<Json> normalizer = steps_of(root, "normalizer", "normalizers");
  if (normalizer.size() == 1 && normalizer[0].is_object() &&
      is_text(normalizer[0], "type", "NFC")) {
    rules.composes_characters = true;
  } else if (!normalizer.empty()) {
    return unknown_steps(root, "normalizer");
  }
  rules.ignore_merges = is_flag(model, "ignore_merges", true, false);
  return rules;
}

// Spaces become U+2581, by the normalizer or by the pre-tokenizer; either may also put one in
// front of the text.
absl::StatusOr<CharacterRules> read_character_rules(const Json& root, const Json& model) {
  constexpr std::string_view kSpace = "\u2581";
  CharacterRules rules{.space_prefix = false};
  bool spaces_replaced = false;
  for (const Json& step : steps_of(root, "normalizer", "normalizers")) {
    if (step.is_object() && is_text(step, "type", "Prepend") && is_text(step, "prepend", kSpace)) {
      rules.space_prefix = true;
    } else if (step.is_object() && is_text(step, "type", "Replace") &&
               is_text(step, "content", kSpace) && step.contains("pattern") &&
               step["pattern"] == Json{{"String", " "}}) {
      spaces_replaced = true;
    } else {
      return unknown_steps(root, "normalizer");
    }
  }
  for (const Json& step : steps_of(root, "pre_tokenizer", "pretokenizers")) {
    if (!step.is_object() || !is_text(step, "type", "Metaspace") ||
        !is_text(step, "replacement", kSpace) || !is_flag(step, "split", false, true)) {
      return unknown_steps(root, "pre_tokenizer");
    }
    rules.space_prefix |= !is_text(step, "prepend_scheme", "never");
    spaces_replaced = true;
  }
  if (!spaces_replaced) return unknown_steps(root, "pre_tokenizer");
  rules.joins_unknown = is_flag(model, "fuse_unk", true, false);
  return rules;
}

absl::Status read_tokens(const Json& root, const Json& model, bool bytes, Vocabulary& vocabulary) {
  const auto entries = model.find("vocab");
  if (entries == model.end() || !entries->is_object()) {
    return invalid("model.vocab is not an object");
  }
  const auto place = [&](const Json& id, const std::string& field) -> absl::StatusOr<TokenId> {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= Vocabulary::kTokensMax) {
      return invalid(
          str_cat(field, " is ", shown(id), ", must be in 0..", Vocabulary::kTokensMax - 1));
    }
    const auto token = id.get<TokenId>();
    if (token >= vocabulary.tokens.size()) vocabulary.tokens.resize(token + 1);
    return token;
  };
  vocabulary.tokens.reserve(entries->size());
  for (const auto& [spelling, id] : entries->items()) {
    RAG_ASSIGN_OR_RETURN(const TokenId token,
                         place(id, str_cat("model.vocab of ", shown(spelling))));
    if (vocabulary.tokens[token].kind != TokenKind::kUnused) {
      return invalid(str_cat("model.vocab has the id ", token, " twice"));
    }
    const bool is_byte = bytes && byte_of_spelling(spelling).has_value();
    vocabulary.tokens[token] = {spelling, is_byte ? TokenKind::kByte : TokenKind::kText};
  }

  const auto added = root.find("added_tokens");
  if (added == root.end()) return absl::OkStatus();
  if (!added->is_array()) return invalid("added_tokens is not an array");
  for (size_t i = 0; i < added->size(); ++i) {
    const Json& entry = (*added)[i];
    const std::string field = str_cat("added_tokens[", i, "]");
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string()) {
      return invalid(str_cat(field, ".content is not a string"));
    }
    const std::string spelling = entry["content"];
    RAG_ASSIGN_OR_RETURN(const TokenId token, place(entry.value("id", Json()), field + ".id"));
    const TokenKind kind =
        is_flag(entry, "special", true, false) ? TokenKind::kControl : kind_of_added(spelling);
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (kind == TokenKind::kAdded && !is_flag(entry, flag, false, false)) {
        return absl::UnimplementedError(str_cat(field, ".", flag, " is true, which is not known"));
      }
    }
    vocabulary.tokens[token] = {spelling, kind};
  }
  return absl::OkStatus();
}

absl::Status read_merges(const Json& model, Vocabulary& vocabulary) {
  const auto entries = model.find("merges");
  if (entries == model.end() || !entries->is_array() || entries->size() > kMergesMax) {
    return invalid(str_cat("model.merges is not an array of up to ", kMergesMax, " pairs"));
  }
  // By spelling of all tokens that model.vocab has, added ones too: merges may lead to them.
  absl::flat_hash_map<std::string, TokenId> ids;
  for (const auto& [spelling, id] : model["vocab"].items()) ids.emplace(spelling, id);
  for (size_t i = 0; i < entries->size(); ++i) {
    const Json& entry = (*entries)[i];
    std::string left;
    std::string right;
    if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string::npos) left = text.substr(0, space), right = text.substr(space + 1);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      left = entry[0], right = entry[1];
    }
    if (left.empty() || right.empty()) {
      return invalid(str_cat("model.merges entry ", i, " is not two tokens"));
    }
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const auto merged_id = ids.find(left + right);
    if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
      return invalid(str_cat("model.merges entry ", i, " uses a token that model.vocab lacks"));
    }
    vocabulary.merges.push_back(
        {left_id->second, right_id->second, merged_id->second, static_cast<uint32_t>(i)});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> make_tokenizer(const Json& root,
                                                                const SpecialSpellings& special) {
  const auto found = root.find("model");
  if (found == root.end() || !found->is_object()) return invalid("model is not an object");
  const Json& model = *found;
  if (!is_text(model, "type", "BPE")) {
    return absl::UnimplementedError(
        str_cat("model.type is ", shown(model.value("type", Json())), ", only BPE is supported"));
  }
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json value = model.value(field, Json());
    if (!value.is_null() && value != "" && value != 0.0) {
      return absl::UnimplementedError(
          str_cat("model.", field, " is ", shown(value), ", which is not known"));
    }
  }
  Vocabulary vocabulary;
  const bool byte_fallback = is_flag(model, "byte_fallback", true, false);
  RAG_RETURN_IF_ERROR(read_tokens(root, model, byte_fallback, vocabulary));
  if (vocabulary.tokens.empty()) return invalid("model.vocab is empty");
  RAG_RETURN_IF_ERROR(read_merges(model, vocabulary));
  set_special_tokens(special, vocabulary);
  if (!byte_fallback) {
    RAG_ASSIGN_OR_RETURN(const ByteLevelRules rules, read_byte_level_rules(root, model));
    return make_byte_level_tokenizer(vocabulary, rules);
  }
  RAG_ASSIGN_OR_RETURN(const CharacterRules rules, read_character_rules(root, model));
  if (const auto unknown = model.find("unk_token");
      unknown != model.end() && unknown->is_string()) {
    const auto id = model["vocab"].find(unknown->get_ref<const std::string&>());
    if (id == model["vocab"].end()) return invalid("model.unk_token is not in model.vocab");
    vocabulary.unknown = id->get<TokenId>();
  }
  return make_character_tokenizer(vocabulary, rules);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_json_tokenizer(
    const std::string& path, const SpecialSpellings& special) {
  RAG_ASSIGN_OR_RETURN(const JsonObject file, JsonObject::open(path));
  auto tokenizer = make_tokenizer(file.json(), special);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(), str_cat(path, ": ", tokenizer.status().message()));
}

}  // namespace ragcache
