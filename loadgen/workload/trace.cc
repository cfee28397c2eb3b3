#include "loadgen/workload/trace.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

absl::StatusOr<uint64_t> uint_of(const json& object, const char* field, uint64_t min,
                                 uint64_t max) {
  auto it = object.find(field);
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() < min ||
      it->get<uint64_t>() > max) {
    return absl::InvalidArgumentError(
        str_cat(field, ": must be an integer from ", min, " to ", max));
  }
  return it->get<uint64_t>();
}

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

// https://github.com/flashserve/RAGPulse: token lengths of passages, and per request the passages'
// numbers. Timestamps are seconds, written as strings, and not in order.
absl::StatusOr<Trace> read_ragpulse(const std::string& folder) {
  absl::flat_hash_map<uint64_t, uint32_t> lengths;
  const std::string lengths_path = folder + "/2_passages.jsonl";
  RAG_ASSIGN_OR_RETURN(const std::string lengths_text, read_text_file_or_gz(lengths_path));
  RAG_RETURN_IF_ERROR(
      for_each_json_line(lengths_path, lengths_text, [&](const json& line) -> absl::Status {
        RAG_ASSIGN_OR_RETURN(const uint64_t id, uint_of(line, "passage_id", 0, UINT32_MAX));
        RAG_ASSIGN_OR_RETURN(const uint64_t tokens,
                             uint_of(line, "token_length", 1, Trace::kDocumentTokensMax));
        lengths[id] = static_cast<uint32_t>(tokens);
        return absl::OkStatus();
      }));

  struct Request {
    uint64_t time = 0;
    std::vector<uint64_t> passages;
  };
  std::vector<Request> requests;
  const std::string path = folder + "/0_trace.jsonl";
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file_or_gz(path));
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    Request request;
    auto time = line.find("timestamp");
    if (time == line.end() || !time->is_string()) {
      return absl::InvalidArgumentError("timestamp: must be a string of seconds");
    }
    const auto& digits = time->get_ref<const std::string&>();
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), request.time);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return absl::InvalidArgumentError("timestamp: must be a string of seconds");
    }
    const json passages = line.value("/hash_ids/passages_ids"_json_pointer, json());
    if (!passages.is_array()) {
      return absl::InvalidArgumentError("hash_ids.passages_ids: must be a list");
    }
    for (const json& passage : passages) {
      if (!passage.is_number_unsigned() || !lengths.contains(passage.get<uint64_t>())) {
        return absl::InvalidArgumentError(
            str_cat("hash_ids.passages_ids: ", passage.dump(), " is not in ", lengths_path));
      }
      request.passages.push_back(passage.get<uint64_t>());
    }
    requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.time < b.time; });

  TraceBuilder builder("ragpulse");
  for (const Request& request : requests) {
    std::vector<uint32_t> places;
    for (const uint64_t passage : request.passages) {
      RAG_ASSIGN_OR_RETURN(const uint32_t place,
                           builder.document(str_cat(passage), lengths[passage]));
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
                                        ? read_ragpulse(path)
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
