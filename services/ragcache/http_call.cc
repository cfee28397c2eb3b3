#include "services/ragcache/http_call.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache {

absl::Status error_of(const http::Response& response) {
  const auto body = nlohmann::json::parse(response.body, nullptr, false);
  std::string message = response.body.substr(0, 500);
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    message = body["error"].value("message", message);
  }
  message = absl::StrCat("the server answered ", response.status, ": ", message);
  // What another try may bring: a server that is busy, or got the request too slowly.
  const bool passes = response.status >= 500 || response.status == 429 || response.status == 408;
  return passes ? absl::UnavailableError(message) : absl::InvalidArgumentError(message);
}

absl::StatusOr<nlohmann::json> call_json(const std::string& server,
                                         const http::ClientRequest& request) {
  RAG_ASSIGN_OR_RETURN(auto client, http::Client::create(server));
  RAG_ASSIGN_OR_RETURN(const auto response, client.fetch(request));
  if (response.status >= 400) return error_of(response);
  auto body = nlohmann::json::parse(response.body, nullptr, false);
  if (body.is_discarded()) {
    return absl::InternalError(absl::StrCat("the answer to ", request.target, " is not JSON"));
  }
  return body;
}

}  // namespace ragcache
