#include "common/tokenizer/model_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/json/json_object.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/folder_formats.h"
#include "common/weights/mapped_file.h"

namespace ragcache {
namespace {

std::string config_path(const std::string& folder) { return folder + "/tokenizer_config.json"; }

// A token is given as its spelling or as an object with the spelling in `content`.
absl::StatusOr<std::string> read_spelling(const JsonObject& config, std::string_view field) {
  if (config.has(field) && config.json().at(std::string(field)).is_object()) {
    RAG_ASSIGN_OR_RETURN(const JsonObject token, config.get_object(field));
    return token.get_string("content");
  }
  return value_or(config.get_string(field), std::string());
}

absl::StatusOr<SpecialSpellings> read_special_spellings(const std::string& folder) {
  if (!std::filesystem::exists(config_path(folder))) return SpecialSpellings{};
  RAG_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::open(config_path(folder)));
  SpecialSpellings special;
  RAG_ASSIGN_OR_RETURN(special.eos, read_spelling(config, "eos_token"));
  RAG_ASSIGN_OR_RETURN(const bool adds_bos, value_or(config.get_bool("add_bos_token"), false));
  if (adds_bos) {
    RAG_ASSIGN_OR_RETURN(special.bos, read_spelling(config, "bos_token"));
  }
  return special;
}

}  // namespace

void set_special_tokens(const SpecialSpellings& special, Vocabulary& vocabulary) {
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto& [spelling, kind] = vocabulary.tokens[id];
    if (kind != TokenKind::kControl && kind != TokenKind::kMarkup) continue;
    if (!special.bos.empty() && spelling == special.bos) vocabulary.bos = id;
    if (!special.eos.empty() && spelling == special.eos) vocabulary.eos = id;
  }
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_folder_tokenizer(const std::string& folder) {
  RAG_ASSIGN_OR_RETURN(const SpecialSpellings special, read_special_spellings(folder));
  const std::string json = folder + "/tokenizer.json";
  if (std::filesystem::exists(json)) return load_json_tokenizer(json, special);
  const std::string sentence_piece = folder + "/tokenizer.model";
  if (std::filesystem::exists(sentence_piece)) {
    return load_sentence_piece_tokenizer(sentence_piece, special);
  }
  return absl::NotFoundError(str_cat(folder, " has neither tokenizer.json nor tokenizer.model"));
}

absl::StatusOr<std::string> read_folder_chat_template(const std::string& folder) {
  const std::string jinja = folder + "/chat_template.jinja";
  if (std::filesystem::exists(jinja)) {
    RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(jinja));
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  if (!std::filesystem::exists(config_path(folder))) return std::string();
  RAG_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::open(config_path(folder)));
  if (!config.has("chat_template")) return std::string();
  const nlohmann::json& own = config.json().at("chat_template");
  if (!own.is_array()) return config.get_string("chat_template");
  for (const nlohmann::json& entry : own) {
    if (entry.is_object() && entry.value("name", "") == "default") {
      return entry.value("template", "");
    }
  }
  return absl::InvalidArgumentError(
      str_cat(config.path(), ": chat_template is a list without one named default"));
}

}  // namespace ragcache
