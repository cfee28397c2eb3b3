#pragma once

#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ragcache::loadgen {

inline constexpr size_t kTextFileBytesMax = size_t{1} << 30;

// The whole file, inflated if it is gzip. INVALID_ARGUMENT names the file.
absl::StatusOr<std::string> read_text_file(const std::string& path);

// The same of `path`, or of `path` with .gz behind where only that exists.
absl::StatusOr<std::string> read_text_file_or_gz(const std::string& path);

// `path` itself, or, where that is a folder, its files whose names end like that, by name.
// INVALID_ARGUMENT if there is none.
absl::StatusOr<std::vector<std::string>> files_of(const std::string& path,
                                                  std::initializer_list<std::string_view> endings);

// The same where there must be one. INVALID_ARGUMENT if there are several to choose from.
absl::StatusOr<std::string> file_of(const std::string& path,
                                    std::initializer_list<std::string_view> endings);

// Calls `take` for each line that is not blank, without what ends it; what it returns gets file and
// line put in front.
absl::Status for_each_line(const std::string& path, const std::string& text,
                           const std::function<absl::Status(std::string_view line)>& take);

// The same for the JSON object of each line. Lines that hold none are errors.
absl::Status for_each_json_line(
    const std::string& path, const std::string& text,
    const std::function<absl::Status(const nlohmann::json& object)>& take);

// Records of fields, which may be quoted (RFC 4180).
absl::StatusOr<std::vector<std::vector<std::string>>> parse_csv(const std::string& text);

}  // namespace ragcache::loadgen
