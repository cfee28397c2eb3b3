#include <cstdio>

#include "common/status.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/http_call.h"

namespace ragcache {
namespace {

using nlohmann::json;

void print(const json& object) {
  for (const auto& [key, value] : object.items()) {
    std::printf("%-24s %s\n", key.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

}  // namespace

absl::Status show_status(const std::string& server, bool as_json) {
  RAG_ASSIGN_OR_RETURN(auto client, http::Client::create(server));
  RAG_ASSIGN_OR_RETURN(const auto response, client.fetch({.target = "/readyz"}));
  // "Not ready" is an answer too, and says why.
  const json body = json::parse(response.body, nullptr, false);
  if (!body.is_object()) return error_of(response);
  if (as_json) {
    std::printf("%s\n", body.dump().c_str());
  } else {
    print(body);
  }
  if (response.status >= 400) return absl::UnavailableError("the service is not ready");
  return absl::OkStatus();
}

}  // namespace ragcache
