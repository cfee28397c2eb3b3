#include "loadgen/workload/trace.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/recording.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

class TraceBuilder {
 public:
  explicit TraceBuilder(std::string name) { trace_.name = std::move(name); }

  absl::StatusOr<uint32_t> document(const std::string& id, uint32_t tokens) {
    const auto place = static_cast<uint32_t>(trace_.documents.size());
    const auto [it, is_new] = places_.try_emplace(id, place);
    if (is_new) trace_.documents.push_back({id, tokens});
    if (trace_.documents[it->second].tokens != tokens) {
      return absl::InvalidArgumentError(str_cat("documents: ", id, " has ", tokens, " tokens, but ",
                                                trace_.documents[it->second].tokens, " before"));
    }
    return it->second;
  }

  void request(std::vector<uint32_t> places) {
    if (!places.empty()) trace_.requests.push_back(std::move(places));
  }

  Trace finish() && { return std::move(trace_); }

 private:
  Trace trace_;
  absl::flat_hash_map<std::string, uint32_t> places_;
};

absl::StatusOr<Trace> read_json_lines(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  std::string name = std::filesystem::path(path).filename().string();
  name = name.substr(0, name.find('.'));
  TraceBuilder builder(std::move(name));
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    auto documents = line.find("documents");
    if (documents == line.end() || !documents->is_array()) {
      return absl::InvalidArgumentError("documents: must be a list");
    }
    std::vector<uint32_t> places;
    for (const json& document : *documents) {
      auto id = document.find("id");
      if (!document.is_object() || id == document.end() || !id->is_string()) {
        return absl::InvalidArgumentError("documents.id: must be a string");
      }
      RAG_ASSIGN_OR_RETURN(const uint64_t tokens,
                           uint_of(document, "tokens", 1, Trace::kDocumentTokensMax));
      RAG_ASSIGN_OR_RETURN(const uint32_t place,
                           builder.document(id->get<std::string>(), static_cast<uint32_t>(tokens)));
      places.push_back(place);
    }
    builder.request(std::move(places));
    return absl::OkStatus();
  }));
  return std::move(builder).finish();
}

absl::StatusOr<Trace> read_passages(const std::string& folder) {
  RAG_ASSIGN_OR_RETURN(std::vector<RecordedRequest> requests, read_ragpulse(folder));
  std::stable_sort(
      requests.begin(), requests.end(),
      [](const RecordedRequest& a, const RecordedRequest& b) { return a.time_s < b.time_s; });
  TraceBuilder builder("ragpulse");
  for (const RecordedRequest& request : requests) {
    std::vector<uint32_t> places;
    for (const RecordedPart& passage : request.documents) {
      RAG_ASSIGN_OR_RETURN(const uint32_t place, builder.document(passage.id, passage.tokens));
      places.push_back(place);
    }
    builder.request(std::move(places));
  }
  return std::move(builder).finish();
}

}  // namespace

absl::StatusOr<Trace> read_trace(const std::string& path, const TraceOptions& options) {
  std::error_code error;
  RAG_ASSIGN_OR_RETURN(Trace trace, std::filesystem::is_directory(path, error)
                                        ? read_passages(path)
                                        : read_json_lines(path));
  if (options.shuffle) shuffle(trace.requests, options.seed);
  if (options.max_requests > 0 && trace.requests.size() > options.max_requests) {
    trace.requests.resize(options.max_requests);
  }
  if (options.top_k > 0) {
    trace.name += str_cat("_top", options.top_k);
    for (auto& request : trace.requests) {
      if (request.size() > options.top_k) request.resize(options.top_k);
    }
  }
  if (trace.requests.empty()) {
    return absl::InvalidArgumentError(str_cat(path, ": has no request with documents"));
  }
  return trace;
}

}  // namespace ragcache::loadgen
