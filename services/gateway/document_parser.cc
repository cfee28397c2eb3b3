#include "services/gateway/document_parser.h"

#include <algorithm>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/chat_request.h"
#include "services/gateway/openai_error.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;

absl::Status missing(const std::string& name) {
  return invalid_field(name, "is required", "missing_required_parameter");
}

}  // namespace

absl::Status check_document_id(std::string_view name, std::string_view id) {
  if (id.empty() || id.size() > kMaxDocumentIdBytes) {
    return invalid_field(
        name, str_cat("must be 1 to ", kMaxDocumentIdBytes, " bytes long, not ", id.size()));
  }
  if (!is_utf8(id)) return invalid_field(name, "must be UTF-8");
  const bool has_control =
      std::any_of(id.begin(), id.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (has_control) return invalid_field(name, "must not hold control characters");
  return absl::OkStatus();
}

absl::StatusOr<DocumentItem> parse_document(const json& value, const std::string& path,
                                            size_t max_bytes) {
  RAG_ASSIGN_OR_RETURN(const Fields fields,
                       Fields::of(value, path, path.empty() ? "document" : path));
  DocumentItem item;
  RAG_ASSIGN_OR_RETURN(auto id, fields.text("id", 1, kMaxDocumentIdBytes));
  if (!id) return missing(fields.path_of("id"));
  RAG_RETURN_IF_ERROR(check_document_id(fields.path_of("id"), *id));
  RAG_ASSIGN_OR_RETURN(auto title, fields.text("title", 0, kMaxTitleBytes));
  RAG_ASSIGN_OR_RETURN(auto text, fields.text("text", 1, max_bytes));
  if (!text) return missing(fields.path_of("text"));
  RAG_RETURN_IF_ERROR(fields.refuse_others({"id", "title", "text"}));
  item.set_id(*std::move(id));
  item.set_title(title.value_or(""));
  item.set_text(*std::move(text));
  return item;
}

absl::StatusOr<std::vector<DocumentItem>> parse_documents(std::string_view body, size_t max_bytes) {
  RAG_ASSIGN_OR_RETURN(const json value, parse_json(body));
  std::vector<DocumentItem> items;
  if (!value.is_array()) {
    RAG_ASSIGN_OR_RETURN(items.emplace_back(), parse_document(value, "", max_bytes));
    return items;
  }
  if (value.empty()) return invalid_field("body", "must hold at least one document");
  for (size_t i = 0; i < value.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(items.emplace_back(),
                         parse_document(value[i], str_cat("[", i, "]."), max_bytes));
  }
  return items;
}

absl::Status DocumentLines::feed(std::string_view bytes, std::vector<DocumentItem>& items) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    if (pending_.size() + end > max_line_bytes_) {
      return with_details(absl::InvalidArgumentError(str_cat("line ", line_, ": is longer than ",
                                                             max_line_bytes_, " bytes")),
                          "line", "invalid_value");
    }
    pending_.append(bytes.substr(0, end));
    if (end == bytes.size()) break;
    bytes.remove_prefix(end + 1);
    RAG_RETURN_IF_ERROR(end_line(items));
    ++line_;
  }
  return absl::OkStatus();
}

absl::Status DocumentLines::finish(std::vector<DocumentItem>& items) { return end_line(items); }

absl::Status DocumentLines::end_line(std::vector<DocumentItem>& items) {
  const std::string text = std::move(pending_);
  pending_.clear();
  if (text.find_first_not_of(" \t\r") == std::string::npos) return absl::OkStatus();
  absl::StatusOr<json> value = parse_json(text);
  absl::StatusOr<DocumentItem> item =
      value.ok() ? parse_document(*value, "", max_line_bytes_) : value.status();
  if (item.ok()) {
    items.push_back(*std::move(item));
    return absl::OkStatus();
  }
  // The same status with the line in front of its message.
  absl::Status status(item.status().code(), str_cat("line ", line_, ": ", item.status().message()));
  item.status().ForEachPayload(
      [&](absl::string_view name, const absl::Cord& value) { status.SetPayload(name, value); });
  return status;
}

}  // namespace ragcache::gateway
