#include "common/tokenizer/normalization.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>

#include "common/check.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

const icu::Normalizer2& nfc() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const normalizer = icu::Normalizer2::getNFCInstance(error);
  RAG_CHECK(U_SUCCESS(error));
  return *normalizer;
}

icu::StringPiece piece_of(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

}  // namespace

std::string compose(std::string_view text) {
  // Characters below U+0300 are composed already.
  if (std::ranges::all_of(text, [](char byte) { return static_cast<uint8_t>(byte) < 0xCC; })) {
    return std::string(text);
  }
  RAG_CHECK(text.size() < (size_t{1} << 31));
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed);
  size_t valid_from = 0;
  const auto flush = [&](size_t end) {
    UErrorCode error = U_ZERO_ERROR;
    nfc().normalizeUTF8(0, piece_of(text.substr(valid_from, end - valid_from)), sink, nullptr,
                        error);
    RAG_CHECK(U_SUCCESS(error));
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = read_utf8(text, i);
    if (!character.valid) {
      flush(i);
      composed.append(text.substr(i, character.n_bytes));
      valid_from = i + character.n_bytes;
    }
    i += character.n_bytes;
  }
  flush(text.size());
  return composed;
}

}  // namespace ragcache
