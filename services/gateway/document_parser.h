#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "services/gateway/json.h"

namespace ragcache::gateway {

using DocumentItem = retrieval::v1::UpsertDocumentsRequest::Item;

inline constexpr size_t kMaxTitleBytes = 4096;

// {"id", "title", "text"}; `path` leads the field names in messages.
absl::StatusOr<DocumentItem> parse_document(const nlohmann::json& value, const std::string& path,
                                            size_t max_bytes);

// A body of one document or of an array of them.
absl::StatusOr<std::vector<DocumentItem>> parse_documents(std::string_view body, size_t max_bytes);

// An id as it may stand in a path or query.
absl::Status check_document_id(std::string_view name, std::string_view id);

// Cuts JSONL that comes in pieces into documents, holding one line at most. Blank lines count but
// are no documents. One upload per object.
class DocumentLines {
 public:
  explicit DocumentLines(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Appends the documents that `bytes` completed. An error names line and field; what came before
  // the bad line is in `items`.
  absl::Status feed(std::string_view bytes, std::vector<DocumentItem>& items);
  // The last line, if no line break ended it.
  absl::Status finish(std::vector<DocumentItem>& items);

  uint64_t line() const { return line_; }  // the current one, from 1

 private:
  absl::Status end_line(std::vector<DocumentItem>& items);

  const size_t max_line_bytes_;
  std::string pending_;
  uint64_t line_ = 1;
};

}  // namespace ragcache::gateway
