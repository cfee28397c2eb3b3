#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "common/weights/mapped_file.h"

namespace ragcache {

// BERT's uncased tokenizer, for the embedder: clean text, spaces around CJK characters, accents
// stripped, lower case; words cut at spaces and punctuation; each word by greedy longest match
// against a vocabulary where "##" marks a continuation. Spellings of special tokens are text.
// Immutable, so any thread may encode.
class WordPieceTokenizer {
 public:
  // `path` is a vocab.txt: one token a line, the id being the line's number from 0.
  static absl::StatusOr<std::shared_ptr<const WordPieceTokenizer>> load(const std::string& path);

  // [CLS] text [SEP], in all at most `max_tokens` ids: what does not fit is cut off at the end.
  // REQUIRES: max_tokens >= 2.
  std::vector<TokenId> encode(std::string_view text, size_t max_tokens) const;

  size_t vocabulary_size() const { return n_tokens_; }
  TokenId pad() const { return pad_; }

 private:
  explicit WordPieceTokenizer(MappedFile file) : file_(std::move(file)) {}
  absl::Status read_vocabulary();
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  // Constant after load(). The maps' keys point into the file.
  MappedFile file_;
  size_t n_tokens_ = 0;
  absl::flat_hash_map<absl::string_view, TokenId> beginnings_;
  absl::flat_hash_map<absl::string_view, TokenId> continuations_;
  size_t token_bytes_max_ = 0;
  TokenId pad_ = 0;
  TokenId unknown_ = 0;
  TokenId sequence_start_ = 0;
  TokenId sequence_end_ = 0;
};

}  // namespace ragcache
