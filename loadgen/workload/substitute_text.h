#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/token_counter.h"

namespace ragcache::loadgen {

// Text in place of what a recording tells only the length of: common words that are one token each
// to a model's tokenizer, alone, after a space and at the start of a document, so that lengths are
// exact. A key always gives the same words, the shorter text being the start of the longer one.
// Immutable.
class SubstituteText {
 public:
  // FAILED_PRECONDITION if the tokenizer has too few such words.
  static absl::StatusOr<SubstituteText> create(const TokenCounter& count_tokens);

  // A text of `tokens` tokens.
  std::string text(std::string_view key, uint32_t tokens) const;

  // A document, with the key as its id, whose segment of a prompt has `tokens` tokens; one of a
  // single word if they are fewer than that takes.
  CorpusDocument document(std::string key, uint32_t tokens) const;

 private:
  SubstituteText(std::vector<std::string_view> words, uint32_t document_tokens)
      : words_(std::move(words)), document_tokens_(document_tokens) {}

  std::vector<std::string_view> words_;  // of the program's list
  uint32_t document_tokens_;             // of a document's segment besides its text
};

}  // namespace ragcache::loadgen
