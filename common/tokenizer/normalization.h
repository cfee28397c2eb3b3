#pragma once

#include <string>
#include <string_view>

namespace ragcache {

// Unicode's canonical composition (NFC). Bytes that are no UTF-8 stay as they are.
// REQUIRES: less than 2 GiB.
std::string compose(std::string_view text);

}  // namespace ragcache
