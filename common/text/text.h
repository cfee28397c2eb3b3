#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

// Makes plain text of files.
namespace ragcache {

enum class TextFormat { kPlain, kMarkdown, kHtml };

struct TitledText {
  std::string title;  // empty if the file has none
  std::string text;
};

// By the ending of a file's name: .txt, .md, .markdown, .html, .htm.
std::optional<TextFormat> text_format_of_name(std::string_view name);

// Reads a file's bytes. INVALID_ARGUMENT: not UTF-8, naming the byte or the other encoding; zero
// bytes; HTML that says it is in another charset. Text may come out empty. The time is linear in
// the number of bytes, whatever they are.
absl::StatusOr<TitledText> read_text(TextFormat format, std::string_view bytes);

// What is between the white space at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace ragcache
