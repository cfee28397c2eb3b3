#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ragcache::loadgen {

inline constexpr size_t kTextFileBytesMax = size_t{1} << 30;

// The whole file, inflated if it is gzip. INVALID_ARGUMENT names the file.
absl::StatusOr<std::string> read_text_file(const std::string& path);

// The same of `path`, or of `path` with .gz behind where only that exists.
absl::StatusOr<std::string> read_text_file_or_gz(const std::string& path);

// Calls `take` for the JSON object of each line that is not blank; what it returns gets file and
// line put in front, as do lines that hold no object.
absl::Status for_each_json_line(
    const std::string& path, const std::string& text,
    const std::function<absl::Status(const nlohmann::json& object)>& take);

// Records of fields, which may be quoted (RFC 4180).
absl::StatusOr<std::vector<std::vector<std::string>>> parse_csv(const std::string& text);

}  // namespace ragcache::loadgen
