#include "loadgen/peers/url_peers.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;
using Named = std::pair<std::string, std::string>;

// `value` tells in words what stands behind the name.
absl::StatusOr<std::vector<Named>> split(const char* option, const char* value,
                                         const std::vector<std::string>& arguments) {
  std::vector<Named> all;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          str_cat(option, ": is \"", argument, "\", must be NAME=", value));
    }
    Named named(argument.substr(0, equals), argument.substr(equals + 1));
    if (std::any_of(all.begin(), all.end(),
                    [&named](const Named& other) { return other.first == named.first; })) {
      return absl::InvalidArgumentError(str_cat(option, ": has ", named.first, " twice"));
    }
    all.push_back(std::move(named));
  }
  return all;
}

absl::StatusOr<EndpointOptions*> endpoint_of(const char* option, const std::string& name,
                                             std::vector<UrlPeer>& peers) {
  const auto it = std::find_if(peers.begin(), peers.end(),
                               [&name](const UrlPeer& peer) { return peer.name == name; });
  if (it == peers.end()) {
    return absl::InvalidArgumentError(
        str_cat(option, ": has \"", name, "\", must be a name of --url"));
  }
  return &it->endpoint;
}

}  // namespace

absl::StatusOr<std::vector<UrlPeer>> url_peers(const UrlPeerOptions& options) {
  std::vector<UrlPeer> peers;
  RAG_ASSIGN_OR_RETURN(const auto urls, split("--url", "http://host:port", options.urls));
  for (const auto& [name, url] : urls) {
    peers.push_back(
        {.name = name,
         .endpoint = {.url = url, .segments = false, .extra = R"({"ignore_eos": true})"}});
  }
  RAG_ASSIGN_OR_RETURN(const auto models, split("--url-model", "MODEL", options.models));
  for (const auto& [name, model] : models) {
    RAG_ASSIGN_OR_RETURN(EndpointOptions* const endpoint, endpoint_of("--url-model", name, peers));
    endpoint->model = model;
  }
  RAG_ASSIGN_OR_RETURN(const auto variables,
                       split("--url-key-env", "VARIABLE", options.key_variables));
  for (const auto& [name, variable] : variables) {
    RAG_ASSIGN_OR_RETURN(EndpointOptions* const endpoint,
                         endpoint_of("--url-key-env", name, peers));
    const char* const key = std::getenv(variable.c_str());
    if (key == nullptr || *key == '\0') {
      return absl::InvalidArgumentError(
          str_cat("--url-key-env: ", variable, ", for ", name, ", is not in the environment"));
    }
    endpoint->api_key = key;
  }
  RAG_ASSIGN_OR_RETURN(const auto extras, split("--url-extra", "JSON", options.extras));
  for (const auto& [name, extra] : extras) {
    RAG_ASSIGN_OR_RETURN(EndpointOptions* const endpoint, endpoint_of("--url-extra", name, peers));
    if (!json::parse(extra, nullptr, false).is_object()) {
      return absl::InvalidArgumentError(
          str_cat("--url-extra: for ", name, " is \"", extra, "\", must be a JSON object"));
    }
    endpoint->extra = extra;
  }
  return peers;
}

}  // namespace ragcache::loadgen
