#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"

namespace ragcache::loadgen {

// RAGCache's API beside answers, for what is done before a load. One thread.
class RagServer {
 public:
  // `url` by HTTP; `api_key`: empty: none.
  RagServer(std::string url, std::string api_key)
      : url_(std::move(url)), api_key_(std::move(api_key)) {}

  // Adds the documents, or replaces those of the same ids. Shows its progress; ends once
  // `interrupted`, if given, is not OK.
  absl::Status ingest(std::span<const CorpusDocument> documents,
                      const std::function<absl::Status()>& interrupted = {}) const;

  // What retrieval finds, best first.
  absl::StatusOr<std::vector<CorpusDocument>> search(const std::string& query,
                                                     uint32_t top_k) const;

 private:
  const std::string url_;
  const std::string api_key_;
};

}  // namespace ragcache::loadgen
