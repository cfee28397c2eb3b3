#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "loadgen/load/load.h"

namespace ragcache::loadgen {

// Where a server takes such requests.
const char* target_of(const Request& request);

// The request as OpenAI's API has it: streamed, with usage, greedy. `extra`: an object whose
// members are added or replace what is there.
std::string request_body(const Request& request, const EndpointOptions& endpoint,
                         const nlohmann::json& extra);

}  // namespace ragcache::loadgen
