#include "services/retrieval/documents/document.h"

#include <charconv>
#include <cstring>

#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

constexpr char kPieceMark = '#';

}  // namespace

Digest content_digest(std::string_view title, std::string_view text) {
  const uint64_t title_size = title.size();
  uint8_t length[sizeof(title_size)];
  std::memcpy(length, &title_size, sizeof(length));
  return Sha256().update(std::span<const uint8_t>(length)).update(title).update(text).finish();
}

std::string piece_id(std::string_view document_id, uint32_t number) {
  return str_cat(document_id, std::string_view(&kPieceMark, 1), number);
}

std::optional<PieceName> parse_piece_id(std::string_view id) {
  const size_t mark = id.rfind(kPieceMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const std::string_view digits = id.substr(mark + 1);
  if (digits.empty() || digits.front() == '0') return std::nullopt;
  uint32_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [parsed, fault] = std::from_chars(digits.data(), end, number);
  if (fault != std::errc() || parsed != end) return std::nullopt;
  return PieceName{.document_id = std::string(id.substr(0, mark)), .number = number};
}

Placement placement_of(std::string_view document_id) {
  const Digest digest = sha256(document_id);
  Placement placement;
  std::memcpy(&placement, digest.data(), sizeof(placement));
  return placement;
}

}  // namespace ragcache::retrieval
