#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/request/document.h"

namespace ragcache::gateway {

// A body of one document or of an array of them.
absl::StatusOr<std::vector<ParsedDocument>> parse_documents(std::string_view body,
                                                            size_t max_bytes);

// Cuts JSONL that comes in pieces into documents, holding one line at most. Blank lines count but
// are no documents. One upload per object.
class DocumentLines {
 public:
  explicit DocumentLines(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Appends the documents that `bytes` completed. An error names line and field; what came before
  // the bad line is in `documents`.
  absl::Status feed(std::string_view bytes, std::vector<ParsedDocument>& documents);
  // The last line, if no line break ended it.
  absl::Status finish(std::vector<ParsedDocument>& documents);

  uint64_t line() const { return line_; }  // the current one, from 1

 private:
  absl::Status end_line(std::vector<ParsedDocument>& documents);

  const size_t max_line_bytes_;
  std::string pending_;
  uint64_t line_ = 1;
};

}  // namespace ragcache::gateway
