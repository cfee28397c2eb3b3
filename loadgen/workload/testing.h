#pragma once

#include <cstdint>
#include <string_view>

namespace ragcache::loadgen {

// A token counter of tests: a token is a word.
inline uint32_t count_words(std::string_view text) {
  uint32_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}

}  // namespace ragcache::loadgen
