#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ragcache {

// The words of `text` as BERT's uncased models see them, in UTF-8: control characters dropped,
// CJK characters and punctuation words of their own, accents stripped, lower case.
std::vector<std::string> bert_words(std::string_view text);

}  // namespace ragcache
