#pragma once

#include <string>
#include <string_view>

namespace ragcache::loadgen {

// The text for XML and HTML, inside of an element or of a quoted attribute.
std::string escape_markup(std::string_view text);

}  // namespace ragcache::loadgen
