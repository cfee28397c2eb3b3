#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"

namespace ragcache::loadgen {

// Finds documents as the retrieval service does with an exact index: the same encoder reads the
// same texts. Shows its progress. One thread.
class Retriever {
 public:
  // Embeds the documents. `embedding_model` is the encoder's folder.
  static absl::StatusOr<std::unique_ptr<Retriever>> create(
      const std::string& embedding_model, std::span<const CorpusDocument> documents);
  virtual ~Retriever() = default;

  // For each question the places of at most `top_k` documents, the nearest first.
  virtual absl::StatusOr<std::vector<std::vector<uint32_t>>> find(
      std::span<const std::string> questions, uint32_t top_k) = 0;
};

}  // namespace ragcache::loadgen
