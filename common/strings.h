#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace ragcache {

template <typename T>
void str_append_one(std::string& out,
                    const T& text) requires std::convertible_to<const T&, std::string_view> {
  out += std::string_view(text);
}

// absl::string_view, where that is a type of its own.
template <typename T>
    void str_append_one(std::string& out,
                        const T& text) requires(!std::convertible_to<const T&, std::string_view>) &&
    requires {
  text.data()[text.size()];
}
{ out.append(text.data(), text.size()); }

template <typename T>
requires std::is_arithmetic_v<T>
void str_append_one(std::string& out, T value) {
  static_assert(!std::same_as<T, char> && !std::same_as<T, bool>,
                "say what a char or bool should look like");
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// The arguments one after another: strings as they are, numbers in decimal (floats by the
// shortest text that reads back the same). absl::StrCat does not take the std::string_view of
// Debian's absl, which has a type of its own.
template <typename... Args>
std::string str_cat(const Args&... args) {
  std::string out;
  (str_append_one(out, args), ...);
  return out;
}

}  // namespace ragcache
