#include "services/gateway/http/document_lines.h"

#include <algorithm>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {

absl::StatusOr<std::vector<ParsedDocument>> parse_documents(std::string_view body,
                                                            size_t max_bytes) {
  RAG_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(body));
  std::vector<ParsedDocument> documents;
  if (!value.is_array()) {
    RAG_ASSIGN_OR_RETURN(documents.emplace_back(), parse_document(value, "", max_bytes));
    return documents;
  }
  if (value.empty()) return invalid_field("body", "must hold at least one document");
  for (size_t i = 0; i < value.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(documents.emplace_back(),
                         parse_document(value[i], str_cat("[", i, "]."), max_bytes));
  }
  return documents;
}

absl::Status DocumentLines::feed(std::string_view bytes, std::vector<ParsedDocument>& documents) {
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
    RAG_RETURN_IF_ERROR(end_line(documents));
    ++line_;
  }
  return absl::OkStatus();
}

absl::Status DocumentLines::finish(std::vector<ParsedDocument>& documents) {
  return end_line(documents);
}

absl::Status DocumentLines::end_line(std::vector<ParsedDocument>& documents) {
  const std::string text = std::move(pending_);
  pending_.clear();
  if (text.find_first_not_of(" \t\r") == std::string::npos) return absl::OkStatus();
  absl::StatusOr<nlohmann::json> value = parse_json(text);
  absl::StatusOr<ParsedDocument> document =
      value.ok() ? parse_document(*value, "", max_line_bytes_) : value.status();
  if (!document.ok()) return with_prefix(document.status(), str_cat("line ", line_, ": "));
  documents.push_back(*std::move(document));
  return absl::OkStatus();
}

}  // namespace ragcache::gateway
