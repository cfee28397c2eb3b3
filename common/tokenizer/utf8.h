#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ragcache {

// What stands at one place of a text that may not be valid UTF-8.
struct Utf8Char {
  char32_t code_point;  // U+FFFD if not valid
  uint8_t n_bytes;      // at least 1
  bool valid;
  bool incomplete;  // not valid only because the text ends too soon
};

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// Reads the character at `position`. Of an invalid sequence it takes the longest beginning that
// some character could have (Unicode 15, section 3.9, "substitution of maximal subparts"), as
// Python's decoder does.
// REQUIRES: position < text.size().
inline Utf8Char read_utf8(std::string_view text, size_t position) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const uint8_t lead = byte_at(0);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacementCharacter, 1, false, false};
  const uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0xFF >> (length + 1));
  for (uint8_t i = 1; i < length; ++i) {
    if (position + i >= text.size()) return {kReplacementCharacter, i, false, true};
    // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    const uint8_t byte = byte_at(i);
    if (byte < low || byte > high) return {kReplacementCharacter, i, false, false};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, length, true, false};
}

// REQUIRES: code_point <= U+10FFFF, not a surrogate.
inline void append_utf8(std::string& out, char32_t code_point) {
  const auto add = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | code_point >> 6), add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12), add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | code_point >> 18), add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F)), add(0x80 | (code_point & 0x3F));
  }
}

}  // namespace ragcache
