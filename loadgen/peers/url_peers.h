#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/load/load.h"

namespace ragcache::loadgen {

// What is known of servers that run already, each as NAME=VALUE. All but `urls` may leave names
// out.
struct UrlPeerOptions {
  std::vector<std::string> urls;           // http://host:port
  std::vector<std::string> models;         // what they call the model; else ragcache
  std::vector<std::string> key_variables;  // of the environment, which hold API keys; else no key
  // JSON objects whose members go into every request; else {"ignore_eos": true}, so that answers
  // are as long as those of the engines that `peers` starts.
  std::vector<std::string> extras;
};

struct UrlPeer {
  std::string name;
  EndpointOptions endpoint;
};

// In the order of `urls`. INVALID_ARGUMENT names the option.
absl::StatusOr<std::vector<UrlPeer>> url_peers(const UrlPeerOptions& options);

}  // namespace ragcache::loadgen
