#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "ragcache/types/v1/types.pb.h"
#include "services/gateway/request/json.h"

// Searches and their filters.
namespace ragcache::gateway {

absl::Status check_filter(std::string_view name, const types::v1::Filter& filter);

// {"field": value, "field": {"operator": value}}, all of which a document must meet; a plain value
// is "eq". Operators: eq, ne, in, nin, lt, lte, gt, gte, exists. Not yet checked.
absl::Status parse_filter(const std::string& name, const nlohmann::json& value,
                          types::v1::Filter& filter);

// Fills in a top_k of 0. The embedding's dimension is known to retrieval alone.
absl::Status check_search(retrieval::v1::SearchRequest& request, uint32_t default_top_k,
                          uint32_t max_top_k);

}  // namespace ragcache::gateway
