#pragma once

#include <string>

namespace ragcache {

// docs/configuration.md: every option of every executable, from the rows they read it by.
std::string configuration_markdown();

}  // namespace ragcache
