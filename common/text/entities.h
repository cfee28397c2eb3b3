#pragma once

#include <string>
#include <string_view>

namespace ragcache {

// Text with HTML's character references replaced: &#233; &#xE9; and the names of HTML 4. What is
// none stays as it is.
std::string decode_entities(std::string_view text);

}  // namespace ragcache
