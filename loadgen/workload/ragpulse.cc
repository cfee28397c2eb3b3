#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/recording.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

// A kind of part: the file of their lengths, the field of an id there, and the list of the ids of a
// request. No two kinds have an id in common.
struct Kind {
  const char* file;
  const char* id;
  const char* list;
};
constexpr Kind kSystem{"1_sys_prompt.jsonl", "sys_prompt_id", "sys_prompt"};
constexpr Kind kPassages{"2_passages.jsonl", "passage_id", "passages_ids"};
constexpr Kind kHistory{"3_history.jsonl", "history_id", "history"};
constexpr Kind kInput{"4_user_input.jsonl", "user_input_id", "user_input"};

using Lengths = absl::flat_hash_map<uint64_t, uint32_t>;

absl::StatusOr<Lengths> read_lengths(const std::string& folder, const Kind& kind) {
  const std::string path = str_cat(folder, "/", kind.file);
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file_or_gz(path));
  Lengths lengths;
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const uint64_t id, uint_of(line, kind.id, 0, UINT32_MAX));
    RAG_ASSIGN_OR_RETURN(const uint64_t tokens,
                         uint_of(line, "token_length", 1, RecordedRequest::kTokensMax));
    lengths[id] = static_cast<uint32_t>(tokens);
    return absl::OkStatus();
  }));
  return lengths;
}

absl::Status add_parts(const json& ids, const Kind& kind, const Lengths& lengths,
                       std::vector<RecordedPart>& parts) {
  const json list = ids.value(kind.list, json());
  if (!list.is_array()) {
    return absl::InvalidArgumentError(str_cat("hash_ids.", kind.list, ": must be a list"));
  }
  for (const json& id : list) {
    const auto length = id.is_number_unsigned() ? lengths.find(id.get<uint64_t>()) : lengths.end();
    if (length == lengths.end()) {
      return absl::InvalidArgumentError(
          str_cat("hash_ids.", kind.list, ": ", id.dump(), " is not in ", kind.file));
    }
    parts.push_back({id.dump(), length->second});
  }
  return absl::OkStatus();
}

absl::StatusOr<double> seconds_of(const json& line) {
  RAG_ASSIGN_OR_RETURN(const std::string digits, string_of(line, "timestamp"));
  uint64_t seconds = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, seconds);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return absl::InvalidArgumentError("timestamp: must be a string of seconds");
  }
  return static_cast<double>(seconds);
}

}  // namespace

absl::StatusOr<std::vector<RecordedRequest>> read_ragpulse(const std::string& folder) {
  RAG_ASSIGN_OR_RETURN(const Lengths system, read_lengths(folder, kSystem));
  RAG_ASSIGN_OR_RETURN(const Lengths passages, read_lengths(folder, kPassages));
  RAG_ASSIGN_OR_RETURN(const Lengths history, read_lengths(folder, kHistory));
  RAG_ASSIGN_OR_RETURN(const Lengths inputs, read_lengths(folder, kInput));

  std::vector<RecordedRequest> requests;
  const std::string path = folder + "/0_trace.jsonl";
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file_or_gz(path));
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    RecordedRequest request;
    RAG_ASSIGN_OR_RETURN(request.time_s, seconds_of(line));
    RAG_ASSIGN_OR_RETURN(const uint64_t output_tokens,
                         uint_of(line, "output_length", 0, RecordedRequest::kTokensMax));
    request.output_tokens = static_cast<uint32_t>(output_tokens);
    const json ids = line.value("hash_ids", json());
    if (!ids.is_object()) return absl::InvalidArgumentError("hash_ids: must be an object");
    RAG_RETURN_IF_ERROR(add_parts(ids, kPassages, passages, request.documents));
    std::vector<RecordedPart> input;
    RAG_RETURN_IF_ERROR(add_parts(ids, kSystem, system, request.question));
    RAG_RETURN_IF_ERROR(add_parts(ids, kHistory, history, request.question));
    RAG_RETURN_IF_ERROR(add_parts(ids, kInput, inputs, input));

    uint64_t known = 0;
    for (const auto* parts : {&request.documents, &request.question, &input}) {
      for (const RecordedPart& part : *parts) known += part.tokens;
    }
    RAG_ASSIGN_OR_RETURN(const uint64_t all,
                         uint_of(line, "input_length", known, RecordedRequest::kTokensMax));
    request.question.push_back(
        {str_cat("rest-", requests.size()), static_cast<uint32_t>(all - known)});
    request.question.insert(request.question.end(), input.begin(), input.end());
    requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  return requests;
}

}  // namespace ragcache::loadgen
