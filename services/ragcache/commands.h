#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

// The commands that talk to a running gateway over HTTP. Each prints its result on stdout and its
// progress on stderr. INVALID_ARGUMENT: what the caller gave is wrong; else the command failed.
namespace ragcache {

inline constexpr const char* kDefaultServer = "http://127.0.0.1:8080";

struct IngestCommand {
  std::string server = kDefaultServer;
  std::string api_key;
  std::vector<std::string> paths;  // files and folders; "-" is standard input
  std::string corpus;              // empty: the default one
  bool recursive = false;
  std::string format = "auto";  // or jsonl, txt, md, html
  bool keep_going = false;      // after a document that was refused
  bool json = false;
};
absl::Status ingest(const IngestCommand& command);

struct AskCommand {
  std::string server = kDefaultServer;
  std::string api_key;
  std::string question;
  std::optional<uint32_t> top_k;
  std::vector<std::string> documents;
  std::string corpus;
  std::string filter;  // as JSON
  bool no_rag = false;
  std::optional<uint32_t> max_tokens;
  double temperature = 0;
  std::optional<uint64_t> seed;
  std::string system;
  bool json = false;
};
absl::Status ask(const AskCommand& command);

absl::Status show_status(const std::string& server, bool json);

// What all commands about the cache have.
struct CacheCommand {
  std::string server = kDefaultServer;
  std::string admin_key;
  bool json = false;
};
absl::Status cache_stats(const CacheCommand& command);
absl::Status cache_clear(const CacheCommand& command);

struct CacheTreeCommand : CacheCommand {
  std::string format = "text";  // or json, dot; --json is json
  std::optional<uint32_t> max_nodes;
};
absl::Status cache_tree(const CacheTreeCommand& command);

struct CachePathsCommand : CacheCommand {
  std::string action;                  // warm, pin or unpin
  std::vector<std::string> documents;  // one path, or
  std::string file;                    // a path a line, each an array of ids; "-": standard input
  std::string corpus;
  std::string tenant;
  std::string system;
};
absl::Status cache_paths(const CachePathsCommand& command);

}  // namespace ragcache
