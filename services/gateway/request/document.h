#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "services/gateway/request/json.h"

// Checks of documents, their names and their corpora.
namespace ragcache::gateway {

using DocumentItem = retrieval::v1::UpsertDocumentsRequest::Item;

// Whether `text` is well-formed UTF-8.
bool is_utf8(std::string_view text);

// Of a document that is uploaded.
absl::Status check_document_id(std::string_view name, std::string_view id);
// Of what is looked up: a document, or a piece, whose id is the document's and "#3".
absl::Status check_stored_id(std::string_view name, std::string_view id);
absl::Status check_stored_ids(std::string_view name,
                              const google::protobuf::RepeatedPtrField<std::string>& ids);

// 1 to 64 of a-z, 0-9, '-', '_', '.'; empty means the default corpus.
absl::Status check_corpus(std::string_view name, std::string_view corpus);
absl::Status check_corpus_settings(const retrieval::v1::Corpus& corpus);

// An object of texts, numbers, flags, and lists of them. `name` is how messages call it.
absl::Status check_metadata(const std::string& name, const nlohmann::json& metadata);

// `path` leads the field names in messages.
absl::Status check_document(const std::string& path, const DocumentItem& item, size_t max_bytes);

// {"id", "title", "text", "metadata"}, checked. `corpus` is what the document says of it, if
// anything.
struct ParsedDocument {
  DocumentItem item;
  std::string corpus;
};
absl::StatusOr<ParsedDocument> parse_document(const nlohmann::json& value, const std::string& path,
                                              size_t max_bytes);

}  // namespace ragcache::gateway
