#include "services/gateway/request/document.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/utf8.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

absl::Status check_utf8(std::string_view name, std::string_view text) {
  return is_utf8(text) ? absl::OkStatus() : invalid_field(name, "must be UTF-8");
}

absl::Status check_metadata_value(const std::string& name, const json& value) {
  if (value.is_boolean() || value.is_number()) return absl::OkStatus();
  if (!value.is_string()) {
    return invalid_field(name,
                         str_cat("must be a string, a number, a boolean, or a list of these, ",
                                 "not ", kind_of(value)),
                         "invalid_type");
  }
  return check_bytes(name, value.get_ref<const std::string&>(), 0, kMaxFieldTextBytes);
}

// "guide.md" of the piece "guide.md#3"; any other id as it is.
std::string_view document_of(std::string_view id) {
  constexpr size_t kMaxDigits = 10;
  const size_t mark = id.rfind('#');
  if (mark == 0 || mark == std::string_view::npos) return id;
  const std::string_view number = id.substr(mark + 1);
  const bool is_piece = !number.empty() && number.size() <= kMaxDigits &&
                        number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_piece ? id.substr(0, mark) : id;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = read_utf8(text, at);
    if (!character.valid) return false;
    at += character.n_bytes;
  }
  return true;
}

absl::Status check_document_id(std::string_view name, std::string_view id) {
  RAG_RETURN_IF_ERROR(check_bytes(name, id, 1, kMaxDocumentIdBytes));
  RAG_RETURN_IF_ERROR(check_utf8(name, id));
  if (has_control_characters(id)) return invalid_field(name, "must not hold control characters");
  return absl::OkStatus();
}

absl::Status check_stored_id(std::string_view name, std::string_view id) {
  return check_document_id(name, document_of(id));
}

absl::Status check_stored_ids(std::string_view name,
                              const google::protobuf::RepeatedPtrField<std::string>& ids) {
  if (ids.empty() || ids.size() > kMaxIds) {
    return invalid_field(name, str_cat("must hold 1 to ", kMaxIds, " ids, not ", ids.size()));
  }
  for (int i = 0; i < ids.size(); ++i) {
    RAG_RETURN_IF_ERROR(check_stored_id(str_cat(name, "[", i, "]"), ids[i]));
  }
  return absl::OkStatus();
}

absl::Status check_corpus(std::string_view name, std::string_view corpus) {
  const bool known_characters = std::all_of(corpus.begin(), corpus.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.").find(c) != std::string_view::npos;
  });
  if (known_characters && corpus.size() <= kMaxCorpusBytes) return absl::OkStatus();
  return invalid_field(name,
                       str_cat("must be 1 to ", kMaxCorpusBytes, " of a-z, 0-9, '-', '_', '.'"));
}

absl::Status check_corpus_settings(const retrieval::v1::Corpus& corpus) {
  if (corpus.name().empty()) return missing_field("name");
  RAG_RETURN_IF_ERROR(check_corpus("name", corpus.name()));
  if (!types::v1::CacheScope_IsValid(corpus.cache_scope())) {
    return invalid_field("cache_scope", "must be tenant or shared");
  }
  return absl::OkStatus();
}

absl::Status check_metadata(const std::string& name, const json& metadata) {
  if (!metadata.is_object()) {
    return invalid_field(name, str_cat("must be an object, not ", kind_of(metadata)),
                         "invalid_type");
  }
  if (metadata.size() > kMaxMetadataFields) {
    return invalid_field(
        name, str_cat("must hold at most ", kMaxMetadataFields, " fields, not ", metadata.size()));
  }
  for (const auto& [key, value] : metadata.items()) {
    if (key.empty() || key.size() > kMaxFieldNameBytes || has_control_characters(key)) {
      return invalid_field(name, str_cat("a field's name must be 1 to ", kMaxFieldNameBytes,
                                         " bytes long, without control characters"));
    }
    const std::string path = str_cat(name, ".", key);
    if (!value.is_array()) {
      RAG_RETURN_IF_ERROR(check_metadata_value(path, value));
      continue;
    }
    if (value.size() > kMaxFieldValues) {
      return invalid_field(
          path, str_cat("must hold at most ", kMaxFieldValues, " values, not ", value.size()));
    }
    for (size_t i = 0; i < value.size(); ++i) {
      RAG_RETURN_IF_ERROR(check_metadata_value(str_cat(path, "[", i, "]"), value[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status check_document(const std::string& path, const DocumentItem& item, size_t max_bytes) {
  const std::string title = path + "title";
  const std::string text = path + "text";
  RAG_RETURN_IF_ERROR(check_document_id(path + "id", item.id()));
  RAG_RETURN_IF_ERROR(check_bytes(title, item.title(), 0, kMaxTitleBytes));
  RAG_RETURN_IF_ERROR(check_utf8(title, item.title()));
  RAG_RETURN_IF_ERROR(check_bytes(text, item.text(), 1, max_bytes));
  RAG_RETURN_IF_ERROR(check_utf8(text, item.text()));
  if (item.metadata().empty()) return absl::OkStatus();
  const std::string metadata = path + "metadata";
  RAG_RETURN_IF_ERROR(check_bytes(metadata, item.metadata(), 0, max_bytes));
  absl::StatusOr<json> value = parse_json(item.metadata());
  if (!value.ok()) return with_prefix(value.status(), metadata + ": ");
  return check_metadata(metadata, *value);
}

absl::StatusOr<ParsedDocument> parse_document(const json& value, const std::string& path,
                                              size_t max_bytes) {
  RAG_ASSIGN_OR_RETURN(const Fields fields,
                       Fields::of(value, path, path.empty() ? "document" : path));
  ParsedDocument document;
  RAG_ASSIGN_OR_RETURN(auto id, fields.text("id"));
  if (!id) return missing_field(fields.path_of("id"));
  RAG_ASSIGN_OR_RETURN(auto title, fields.text("title"));
  RAG_ASSIGN_OR_RETURN(auto text, fields.text("text"));
  if (!text) return missing_field(fields.path_of("text"));
  RAG_ASSIGN_OR_RETURN(auto corpus, fields.text("corpus"));
  const json* metadata = fields.find("metadata");
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  document.item.set_id(*std::move(id));
  document.item.set_title(title.value_or(""));
  document.item.set_text(*std::move(text));
  RAG_RETURN_IF_ERROR(check_document(path, document.item, max_bytes));
  if (metadata != nullptr) {
    RAG_RETURN_IF_ERROR(check_metadata(fields.path_of("metadata"), *metadata));
    document.item.set_metadata(metadata->dump());
  }
  document.corpus = corpus.value_or("");
  RAG_RETURN_IF_ERROR(check_corpus(fields.path_of("corpus"), document.corpus));
  return document;
}

}  // namespace ragcache::gateway
