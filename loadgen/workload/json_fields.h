#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ragcache::loadgen {

// Fields of an object that somebody else wrote. INVALID_ARGUMENT names the field and what it must
// be.
absl::StatusOr<std::string> string_of(const nlohmann::json& object, const char* field);
absl::StatusOr<uint64_t> uint_of(const nlohmann::json& object, const char* field, uint64_t min,
                                 uint64_t max);
absl::StatusOr<std::vector<std::string>> strings_of(const nlohmann::json& object,
                                                    const char* field);
// The list itself; it lives as long as `object`.
absl::StatusOr<const nlohmann::json*> list_of(const nlohmann::json& object, const char* field);

}  // namespace ragcache::loadgen
