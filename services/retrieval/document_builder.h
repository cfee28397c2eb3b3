#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/chunk/chunker.h"
#include "services/retrieval/documents/document.h"
#include "services/retrieval/embed/embedder.h"

namespace ragcache::retrieval {

// A document with all that the store keeps of it.
struct BuiltDocument {
  DocumentText document;
  ChunkOptions cut;
  std::vector<Piece> pieces;
  std::vector<float> vectors;  // [pieces.size(), dimension]
};

// Makes of documents what is stored: cuts them, tokenises the pieces as prompt segments, embeds
// them. Any thread; blocks on the embedder, which must outlive it.
class DocumentBuilder {
 public:
  // An embedding that may be used again, for a piece of the same text at the same place.
  struct KnownPiece {
    std::string text;
    std::optional<std::vector<float>> embedding;
  };
  struct Order {
    DocumentText document;
    ChunkOptions cut;
    std::vector<KnownPiece> known;
  };
  struct Built {
    std::vector<BuiltDocument> documents;  // one for each order
    uint64_t tokens = 0;                   // embedded
  };

  DocumentBuilder(std::shared_ptr<const PromptFormat> format, Embedder& embedder)
      : chunker_(std::move(format)), embedder_(embedder) {}

  // CANCELLED if asked to stop.
  absl::StatusOr<Built> build(std::vector<Order> orders, std::stop_token stop) const;

 private:
  const Chunker chunker_;
  Embedder& embedder_;
};

}  // namespace ragcache::retrieval
