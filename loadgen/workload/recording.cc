#include "loadgen/workload/recording.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/substitute_text.h"

namespace ragcache::loadgen {
namespace {

// Of all texts together: half a gigabyte or so.
constexpr uint64_t kSubstitutedTokensMax = 100'000'000;

uint64_t tokens_of(const std::vector<RecordedPart>& parts) {
  uint64_t tokens = 0;
  for (const RecordedPart& part : parts) tokens += part.tokens;
  return tokens;
}

std::string question_of(const std::vector<RecordedPart>& parts, const std::string& workload,
                        const SubstituteText& substitutes) {
  std::string question;
  for (const RecordedPart& part : parts) {
    if (part.tokens == 0) continue;
    if (!question.empty()) question += ' ';
    question += substitutes.text(str_cat(workload, "/", part.id), part.tokens);
  }
  return question;
}

}  // namespace

absl::StatusOr<Workload> substitute(std::vector<RecordedRequest> recorded,
                                    const WorkloadOptions& options) {
  RAG_ASSIGN_OR_RETURN(const SubstituteText substitutes,
                       SubstituteText::create(options.count_tokens));
  std::stable_sort(
      recorded.begin(), recorded.end(),
      [](const RecordedRequest& a, const RecordedRequest& b) { return a.time_s < b.time_s; });

  Workload workload{.name = options.name, .has_times = true, .substituted = true};
  absl::flat_hash_map<std::string, uint32_t> places;
  uint64_t substituted = 0;
  double start_s = 0;
  for (RecordedRequest& request : recorded) {
    if (options.max_requests > 0 && workload.requests.size() == options.max_requests) break;
    const uint64_t question_tokens = tokens_of(request.question);
    if (options.max_prompt_tokens > 0 &&
        tokens_of(request.documents) + question_tokens > options.max_prompt_tokens) {
      ++workload.left_out;
      continue;
    }
    if (workload.requests.empty()) start_s = request.time_s;
    WorkloadRequest& made = workload.requests.emplace_back();
    made.max_tokens = std::max(request.output_tokens, 1u);
    if (options.max_tokens > 0) made.max_tokens = std::min(made.max_tokens, options.max_tokens);
    made.recorded_s = request.time_s - start_s;
    for (RecordedPart& part : request.documents) {
      const auto place = static_cast<uint32_t>(workload.documents.size());
      const auto [it, is_new] = places.try_emplace(std::move(part.id), place);
      if (is_new) {
        substituted += part.tokens;
        workload.documents.push_back(
            substitutes.document(str_cat(options.name, "/", it->first), part.tokens));
      }
      made.documents.push_back(it->second);
    }
    substituted += question_tokens;
    if (substituted > kSubstitutedTokensMax) {
      return absl::InvalidArgumentError(str_cat(
          options.data, ": the first ", workload.requests.size(), " requests have more than ",
          kSubstitutedTokensMax, " tokens of text: take fewer, or shorter ones"));
    }
    made.question = question_of(request.question, options.name, substitutes);
  }
  return workload;
}

}  // namespace ragcache::loadgen
