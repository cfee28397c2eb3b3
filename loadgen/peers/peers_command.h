#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/experiment/experiment_command.h"
#include "loadgen/peers/url_peers.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// `ragcache-loadgen peers`: RAGCache and other servers on the same model file, with the same
// prompts as token ids, at the same times, with as many bytes for KV.
struct PeersCommand {
  ExperimentCommand experiment;
  std::vector<std::string> engines{"ragcache", "llama.cpp"};  // besides those of `url`
  // The engine whose capacity the rates are shares of; empty: the last of `engines`.
  std::string baseline;
  std::string llama_server;     // the program; empty: in PATH
  std::string openvino_server;  // the script; empty: beside this program
  std::string openvino_path;    // folder of the Python package; empty: Python finds it itself
  UrlPeerOptions url;
};
absl::Status peers(const PeersCommand& command);

// Adds the subcommand; when it is parsed, `chosen` becomes what runs it.
void add_peers(CLI::App& cli, std::function<absl::Status()>& chosen);

}  // namespace ragcache::loadgen
