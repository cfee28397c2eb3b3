#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ragcache::retrieval {

// Where the sentences of a text end, ascending, each with the white space that follows it; the last
// is text.size(). By the rules of Unicode (UAX 29), which take a line end for the end of a
// sentence, except that a line which goes on with a small letter does not end one: plain text is
// often wrapped. Bytes that are no UTF-8 do no harm.
std::vector<size_t> sentence_ends(std::string_view text);

}  // namespace ragcache::retrieval
