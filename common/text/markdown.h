#pragma once

#include <string_view>

#include "common/text/text.h"

namespace ragcache {

// A Markdown file as text: words, lists, tables and code stay, marks that only a renderer needs go
// (addresses of links and images, HTML comments and tags, fences, rules, marks of headings and of
// strong words). The title is that of the front matter, else the first heading. markdown: valid
// UTF-8, lines ending with \n.
TitledText read_markdown(std::string_view markdown);

}  // namespace ragcache
