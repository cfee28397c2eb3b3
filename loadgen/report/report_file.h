#pragma once

#include <string>

#include "absl/status/status.h"

namespace ragcache::loadgen {

// Writes a whole file, making its folder; "-" is standard output.
absl::Status write_report(const std::string& path, const std::string& text);

}  // namespace ragcache::loadgen
