#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "common/tokenizer/prompt_format.h"
#include "services/retrieval/documents/document.h"

namespace ragcache::retrieval {

// Cuts documents into pieces that fit into a prompt. Immutable, any thread.
//
// A document that is short enough is one piece. A longer one is cut at the ends of sentences into
// pieces of about even length; a sentence that is too long for a piece is cut between words, and
// where there are none between characters. Each piece after the first begins with whole sentences
// of the one before, as many as fit into `overlap_tokens`; without these repetitions the pieces are
// the text byte for byte.
//
// The length of a piece is that of its prompt segment, with the title. A title that takes more than
// half of `max_tokens` counts as half, so that there is room for text.
class Chunker {
 public:
  explicit Chunker(std::shared_ptr<const PromptFormat> format) : format_(std::move(format)) {}

  // At least one piece. REQUIRES: max_tokens is 0 or at least kMinTokens.
  std::vector<Piece> cut(std::string_view title, std::string_view text,
                         const ChunkOptions& options) const;

  static constexpr uint32_t kMinTokens = 16;

 private:
  // A sentence, or part of a long one.
  struct Unit {
    size_t begin = 0;
    size_t end = 0;
    size_t tokens = 0;
    bool is_sentence = false;
  };

  std::vector<Unit> units_of(std::string_view text, size_t max_tokens) const;
  size_t count(std::string_view text) const { return format_->tokenizer().encode(text).size(); }
  size_t prefix_end(std::string_view text, size_t max_tokens) const;
  Piece piece_of(std::string_view title, std::string_view text) const;

  const std::shared_ptr<const PromptFormat> format_;
};

}  // namespace ragcache::retrieval
