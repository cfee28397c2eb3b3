#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "common/text/text.h"

namespace ragcache {

// INVALID_ARGUMENT if the beginning of `html` names a charset in which the bytes mean another text
// than in UTF-8; names it.
absl::Status check_html_charset(std::string_view html);

// The text of a page as a reader sees it, its blocks as paragraphs; the title is that of the head,
// else of the first h1. Scripts, styles and what else is not running text is left out. Anything is
// taken for HTML; tags need not match. html: valid UTF-8.
TitledText read_html(std::string_view html);

}  // namespace ragcache
