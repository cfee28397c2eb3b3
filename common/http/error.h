#pragma once

#include <string_view>

#include "absl/status/status.h"

// HTTP status codes travel inside absl::Status, and this is the one place that maps them.
namespace ragcache::http {

// A Status that maps to `http_status`, for codes that no absl code stands for (413, 415, 408 …).
absl::Status error(unsigned http_status, std::string_view message);

// The HTTP status of `status`: the one given to error(), else by its absl code.
unsigned http_status(const absl::Status& status);

// The absl code that a client makes of a response's status; OK below 400.
absl::StatusCode status_code(unsigned http_status);

// The standard's name of a status ("Not Found"), "Unknown" if it has none.
std::string_view reason_phrase(unsigned http_status);

}  // namespace ragcache::http
