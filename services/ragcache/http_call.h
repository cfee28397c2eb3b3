#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/client.h"

namespace ragcache {

// One request to the gateway and its JSON answer. An answer of 400 or above becomes a Status with
// the server's message.
absl::StatusOr<nlohmann::json> call_json(const std::string& server,
                                         const http::ClientRequest& request);

// The Status of an error answer.
absl::Status error_of(const http::Response& response);

}  // namespace ragcache
