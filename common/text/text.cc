#include "common/text/text.h"

#include <algorithm>

#include "common/status.h"
#include "common/strings.h"
#include "common/text/html.h"
#include "common/text/markdown.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

absl::Status check_text(std::string_view bytes) {
  for (const std::string_view mark : {"\xFF\xFE", "\xFE\xFF"}) {
    if (bytes.starts_with(mark)) {
      return absl::InvalidArgumentError("is UTF-16: only UTF-8 is read");
    }
  }
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char character = read_utf8(bytes, at);
    if (!character.valid) return absl::InvalidArgumentError(str_cat("no valid UTF-8 at byte ", at));
    if (character.code_point == 0) {
      return absl::InvalidArgumentError(str_cat("byte ", at, " is zero: not a text"));
    }
    at += character.n_bytes;
  }
  return absl::OkStatus();
}

// Lines end with \n alone.
std::string with_plain_line_ends(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\r') {
      text += bytes[i];
    } else if (i + 1 == bytes.size() || bytes[i + 1] != '\n') {
      text += '\n';
    }
  }
  return text;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<TextFormat> text_format_of_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string ending(name.substr(dot + 1));
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (ending == "txt") return TextFormat::kPlain;
  if (ending == "md" || ending == "markdown") return TextFormat::kMarkdown;
  if (ending == "html" || ending == "htm") return TextFormat::kHtml;
  return std::nullopt;
}

absl::StatusOr<TitledText> read_text(TextFormat format, std::string_view bytes) {
  if (bytes.starts_with(kUtf8Mark)) bytes.remove_prefix(kUtf8Mark.size());
  if (format == TextFormat::kHtml) RAG_RETURN_IF_ERROR(check_html_charset(bytes));
  RAG_RETURN_IF_ERROR(check_text(bytes));
  const std::string text = with_plain_line_ends(bytes);
  switch (format) {
    case TextFormat::kHtml:
      return read_html(text);
    case TextFormat::kMarkdown:
      return read_markdown(text);
    case TextFormat::kPlain:
      break;
  }
  return TitledText{.text = std::string(trimmed(text))};
}

}  // namespace ragcache
