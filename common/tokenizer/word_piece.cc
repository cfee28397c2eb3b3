#include "common/tokenizer/word_piece.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/bert_normalizer.h"

namespace ragcache {
namespace {

constexpr size_t kVocabularyMax = 1 << 22;
constexpr size_t kWordCharactersMax = 100;  // longer words are unknown, as BERT has it
constexpr std::string_view kContinuation = "##";
constexpr std::string_view kAsciiSpaces = " \t\n\r";

absl::string_view key_of(std::string_view text) { return {text.data(), text.size()}; }

bool is_continuation_byte(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

absl::StatusOr<std::shared_ptr<const WordPieceTokenizer>> WordPieceTokenizer::load(
    const std::string& path) {
  RAG_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  std::shared_ptr<WordPieceTokenizer> tokenizer(new WordPieceTokenizer(std::move(file)));
  if (const absl::Status status = tokenizer->read_vocabulary(); !status.ok()) {
    return absl::InvalidArgumentError(
        str_cat(path, " is no usable WordPiece vocabulary: ", status.message()));
  }
  return tokenizer;
}

absl::Status WordPieceTokenizer::read_vocabulary() {
  const auto bytes = file_.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {
    if (n_tokens_ == kVocabularyMax) {
      return absl::InvalidArgumentError(str_cat("it has more than ", kVocabularyMax, " lines"));
    }
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view token = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto id = static_cast<TokenId>(n_tokens_++);
    const bool continues = token.starts_with(kContinuation) && token.size() > kContinuation.size();
    if (continues) token.remove_prefix(kContinuation.size());
    token_bytes_max_ = std::max(token_bytes_max_, token.size());
    if (!(continues ? continuations_ : beginnings_).emplace(key_of(token), id).second) {
      return absl::InvalidArgumentError(str_cat("line ", n_tokens_, " repeats a token"));
    }
  }
  for (const auto& [spelling, id] : {std::pair<std::string_view, TokenId*>("[PAD]", &pad_),
                                     {"[UNK]", &unknown_},
                                     {"[CLS]", &sequence_start_},
                                     {"[SEP]", &sequence_end_}}) {
    const auto found = beginnings_.find(key_of(spelling));
    if (found == beginnings_.end()) {
      return absl::InvalidArgumentError(str_cat("it has no ", spelling));
    }
    *id = found->second;
  }
  return absl::OkStatus();
}

std::vector<TokenId> WordPieceTokenizer::encode(std::string_view text, size_t max_tokens) const {
  RAG_CHECK(max_tokens >= 2);
  std::vector<TokenId> ids = {sequence_start_};
  // Stretches between ASCII spaces are independent of one another, so a long text costs only what
  // fits.
  while (!text.empty() && ids.size() + 1 < max_tokens) {
    const size_t end = std::min(text.find_first_of(kAsciiSpaces), text.size());
    for (const std::string& word : bert_words(text.substr(0, end))) encode_word(word, ids);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  ids.resize(std::min(ids.size(), max_tokens - 1));
  ids.push_back(sequence_end_);
  return ids;
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  const size_t n_characters = word.size() - std::ranges::count_if(word, is_continuation_byte);
  if (n_characters > kWordCharactersMax) {
    ids.push_back(unknown_);
    return;
  }
  const size_t n_before = ids.size();
  for (size_t start = 0; start < word.size();) {
    const auto& vocabulary = start == 0 ? beginnings_ : continuations_;
    size_t length = std::min(word.size() - start, token_bytes_max_);
    auto found = vocabulary.end();
    for (; length > 0; --length) {
      const bool whole_characters =
          start + length == word.size() || !is_continuation_byte(word[start + length]);
      if (!whole_characters) continue;
      found = vocabulary.find(key_of(word.substr(start, length)));
      if (found != vocabulary.end()) break;
    }
    if (length == 0) {
      ids.resize(n_before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(found->second);
    start += length;
  }
}

}  // namespace ragcache
