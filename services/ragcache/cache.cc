#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/http_call.h"
#include "services/ragcache/ingest/input_file.h"

namespace ragcache {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = 64 << 20;
// So many paths go up in one request: between two of them progress is told.
constexpr size_t kPathsPerRequest = 16;

http::ClientRequest request_of(const CacheCommand& command, const std::string& method,
                               const std::string& target) {
  http::ClientRequest request{.method = method, .target = target};
  if (!command.admin_key.empty()) {
    request.headers.add("Authorization", "Bearer " + command.admin_key);
  }
  return request;
}

// ---- stats

uint64_t number(const json& stats, const char* name) { return stats.value(name, uint64_t{0}); }

std::string percent(uint64_t part, uint64_t whole) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%",
                whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string mib(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

void print_row(const std::string& name, const std::string& text) {
  std::printf("%-20s %s\n", name.c_str(), text.c_str());
}

void print_tier(const char* name, const json& blocks, uint64_t tokens) {
  std::printf("%-20s %10llu %10llu %10llu %10llu %12llu\n", name,
              static_cast<unsigned long long>(number(blocks, "total")),
              static_cast<unsigned long long>(number(blocks, "cached")),
              static_cast<unsigned long long>(number(blocks, "reserved")),
              static_cast<unsigned long long>(number(blocks, "free")),
              static_cast<unsigned long long>(tokens));
}

void print_stats(const json& stats) {
  std::printf("%-20s %10s %10s %10s %10s %12s\n", "tier", "blocks", "cached", "reserved", "free",
              "tokens");
  print_tier("device", stats.value("blocks", json::object()), number(stats, "device_tokens"));
  print_tier("host", stats.value("host_blocks", json::object()), number(stats, "host_tokens"));
  std::printf("\n");
  print_row("policy", stats.value("policy", ""));
  print_row("nodes",
            absl::StrCat(number(stats, "nodes"), ", of them ", number(stats, "pinned_nodes"),
                         " in use; pinned paths: ", number(stats, "kept_nodes")));
  const uint64_t queried = number(stats, "queried_prefix_tokens");
  const uint64_t hit = number(stats, "hit_prefix_tokens");
  const uint64_t hit_host = number(stats, "hit_host_prefix_tokens");
  print_row("prefix tokens",
            absl::StrCat(queried, " asked for, ", hit, " found (", percent(hit, queried),
                         "): ", hit - hit_host, " on the device, ", hit_host, " on the host"));
  const uint64_t evicted = number(stats, "evicted_nodes");
  const uint64_t demoted = number(stats, "demoted_nodes");
  print_row("device evictions", absl::StrCat(evicted, " nodes: ", demoted, " to the host, ",
                                             evicted - demoted, " freed"));
  print_row("host evictions", absl::StrCat(number(stats, "evicted_host_nodes"),
                                           " nodes; copies: ", number(stats, "released_copies"),
                                           " given up, ", number(stats, "lost_copies"), " lost"));
  print_row("transfers", absl::StrCat(mib(number(stats, "saved_bytes")), " to the host, ",
                                      mib(number(stats, "loaded_bytes")), " back"));
  print_row("requests", absl::StrCat(number(stats, "running_requests"), " running, ",
                                     number(stats, "waiting_requests"), " waiting"));
  print_row("documents",
            absl::StrCat(number(stats, "documents"), ", index ", stats.value("index_kind", "")));
  print_row("ledger mismatches", absl::StrCat(number(stats, "ledger_mismatches")));
}

// ---- paths

absl::StatusOr<json> read_paths(const std::string& path) {
  absl::StatusOr<InputFile> file = InputFile::open(path);
  absl::StatusOr<std::string> text = file.ok() ? file->read_all(kMaxFileBytes) : file.status();
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--file: ", path, ": ", std::string(text.status().message())));
  }
  json paths = json::array();
  size_t line = 0;
  for (size_t begin = 0, end; begin < text->size(); begin = end + 1) {
    end = std::min(text->find('\n', begin), text->size());
    ++line;
    const std::string one = text->substr(begin, end - begin);
    if (one.find_first_not_of(" \t\r") == std::string::npos) continue;
    json value = json::parse(one, nullptr, false);
    if (!value.is_array()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--file: ", path, ":", line,
                       ": must be a JSON array of document ids, as [\"a\", \"b\"]"));
    }
    paths.push_back(std::move(value));
  }
  if (paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--file: ", path, " holds no path"));
  }
  return paths;
}

absl::StatusOr<json> update_paths(const CachePathsCommand& command, json paths) {
  json body = {{"paths", std::move(paths)}};
  if (!command.corpus.empty()) body["corpus"] = command.corpus;
  if (!command.tenant.empty()) body["tenant"] = command.tenant;
  if (!command.system.empty()) body["system"] = command.system;
  http::ClientRequest request = request_of(command, "POST", "/admin/cache/" + command.action);
  request.headers.add("Content-Type", "application/json");
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return call_json(command.server, request);
}

void print_path(const json& path) {
  const std::string documents = path.value("documents", json::array()).dump();
  if (path.contains("error")) {
    std::fprintf(stderr, "failed: %s: %s\n", documents.c_str(),
                 path["error"].value("message", "").c_str());
  } else {
    std::printf("%s: %llu tokens, %llu of them were cached\n", documents.c_str(),
                static_cast<unsigned long long>(number(path, "tokens")),
                static_cast<unsigned long long>(number(path, "cached_tokens")));
  }
}

}  // namespace

absl::Status cache_stats(const CacheCommand& command) {
  RAG_ASSIGN_OR_RETURN(const json stats,
                       call_json(command.server, request_of(command, "GET", "/admin/cache/stats")));
  if (command.json) {
    std::printf("%s\n", stats.dump().c_str());
  } else {
    print_stats(stats);
  }
  return absl::OkStatus();
}

absl::Status cache_clear(const CacheCommand& command) {
  RAG_ASSIGN_OR_RETURN(
      const json cleared,
      call_json(command.server, request_of(command, "POST", "/admin/cache/clear")));
  if (command.json) {
    std::printf("%s\n", cleared.dump().c_str());
  } else {
    std::printf("%llu nodes with %llu tokens are cleared, %llu nodes are pinned or in use\n",
                static_cast<unsigned long long>(number(cleared, "cleared_nodes")),
                static_cast<unsigned long long>(number(cleared, "cleared_tokens")),
                static_cast<unsigned long long>(number(cleared, "kept_nodes")));
  }
  return absl::OkStatus();
}

absl::Status cache_tree(const CacheTreeCommand& command) {
  std::string target =
      "/admin/cache/tree?format=" + (command.json ? std::string("json") : command.format);
  if (command.max_nodes) absl::StrAppend(&target, "&max_nodes=", *command.max_nodes);
  RAG_ASSIGN_OR_RETURN(auto client, http::Client::create(command.server));
  RAG_ASSIGN_OR_RETURN(const auto response, client.fetch(request_of(command, "GET", target)));
  if (response.status >= 400) return error_of(response);
  std::fwrite(response.body.data(), 1, response.body.size(), stdout);
  if (!response.body.ends_with('\n')) std::printf("\n");
  return absl::OkStatus();
}

absl::Status cache_paths(const CachePathsCommand& command) {
  if (command.documents.empty() && command.file.empty()) {
    return absl::InvalidArgumentError("--document or --file: one of them is required");
  }
  json paths = json::array({command.documents});
  if (!command.file.empty()) {
    RAG_ASSIGN_OR_RETURN(paths, read_paths(command.file));
  }
  json told = json::array();
  uint64_t failed = 0, tokens = 0, cached_tokens = 0;
  for (size_t begin = 0; begin < paths.size(); begin += kPathsPerRequest) {
    const size_t end = std::min(begin + kPathsPerRequest, paths.size());
    json some(paths.begin() + static_cast<ptrdiff_t>(begin),
              paths.begin() + static_cast<ptrdiff_t>(end));
    absl::StatusOr<json> answer = update_paths(command, std::move(some));
    if (!answer.ok()) return answer.status();
    failed += number(*answer, "failed");
    tokens += number(*answer, "tokens");
    cached_tokens += number(*answer, "cached_tokens");
    for (json& path : (*answer)["paths"]) {
      if (!command.json) print_path(path);
      told.push_back(std::move(path));
    }
    if (paths.size() > kPathsPerRequest) {
      std::fprintf(stderr, "%zu of %zu paths\n", end, paths.size());
    }
  }
  if (command.json) {
    std::printf("%s\n", json{{"paths", told},
                             {"done", told.size() - failed},
                             {"failed", failed},
                             {"tokens", tokens},
                             {"cached_tokens", cached_tokens}}
                            .dump()
                            .c_str());
  }
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(failed, " of ", paths.size(), " paths failed"));
}

}  // namespace ragcache
