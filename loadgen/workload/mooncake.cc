#include <nlohmann/json.hpp>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/recording.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

constexpr uint32_t kBlockTokens = 512;
constexpr uint64_t kTimestampMsMax = uint64_t{1} << 48;

absl::StatusOr<RecordedRequest> request_of(const json& line, size_t number) {
  RecordedRequest request;
  RAG_ASSIGN_OR_RETURN(const uint64_t time_ms, uint_of(line, "timestamp", 0, kTimestampMsMax));
  RAG_ASSIGN_OR_RETURN(const uint64_t input,
                       uint_of(line, "input_length", 1, RecordedRequest::kTokensMax));
  RAG_ASSIGN_OR_RETURN(const uint64_t output,
                       uint_of(line, "output_length", 0, RecordedRequest::kTokensMax));
  RAG_ASSIGN_OR_RETURN(const json* hashes, list_of(line, "hash_ids"));
  request.time_s = static_cast<double>(time_ms) / 1000;
  request.output_tokens = static_cast<uint32_t>(output);

  const size_t before_last = (input - 1) / kBlockTokens;
  if (hashes->size() > before_last + 1) {
    return absl::InvalidArgumentError(str_cat("hash_ids: are ", hashes->size(),
                                              ", must be at most ", before_last + 1, " for ", input,
                                              " tokens"));
  }
  std::vector<RecordedPart>& blocks = request.documents;
  for (const json& hash : *hashes) {
    if (!hash.is_number_unsigned()) {
      return absl::InvalidArgumentError("hash_ids: must be a list of integers from 0");
    }
    blocks.push_back({hash.dump(), kBlockTokens});
  }
  RecordedPart last{str_cat("rest-", number), 0};
  if (blocks.size() > before_last) {
    last = std::move(blocks.back());
    blocks.pop_back();
  }
  last.tokens = static_cast<uint32_t>(input - blocks.size() * kBlockTokens);
  request.question.push_back(std::move(last));
  return request;
}

}  // namespace

absl::StatusOr<std::vector<RecordedRequest>> read_mooncake(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const std::string file, file_of(path, {".jsonl", ".jsonl.gz"}));
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(file));
  std::vector<RecordedRequest> requests;
  RAG_RETURN_IF_ERROR(for_each_json_line(file, text, [&](const json& line) -> absl::Status {
    RAG_ASSIGN_OR_RETURN(RecordedRequest request, request_of(line, requests.size()));
    requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  return requests;
}

}  // namespace ragcache::loadgen
