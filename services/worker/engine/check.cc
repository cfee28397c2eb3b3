#include "services/worker/engine/check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::worker {
namespace {

constexpr uint32_t kMaxTopLogprobs = 20;
constexpr size_t kMaxStopTokens = 1024;
constexpr size_t kMaxLogitBiases = 1024;

template <typename... Text>
absl::Status invalid(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

absl::Status in_range(const char* name, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return invalid("sampling.", name, " is ", value, ", must be from ", least, " to ", most);
}

absl::Status check(const SamplingParameters& sampling, uint64_t vocabulary) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    return invalid("sampling.temperature must be finite and at least 0");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return invalid("sampling.top_p must be in (0, 1]");
  }
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 2)) {
    return invalid("sampling.repetition_penalty must be in (0, 2]");
  }
  RAG_RETURN_IF_ERROR(in_range("min_p", sampling.min_p, 0, 1));
  RAG_RETURN_IF_ERROR(in_range("presence_penalty", sampling.presence_penalty, -2, 2));
  RAG_RETURN_IF_ERROR(in_range("frequency_penalty", sampling.frequency_penalty, -2, 2));
  if (sampling.logit_bias.size() > kMaxLogitBiases) {
    return invalid("sampling.logit_bias has ", sampling.logit_bias.size(), " items, at most ",
                   kMaxLogitBiases);
  }
  for (const LogitBias& bias : sampling.logit_bias) {
    if (bias.token >= vocabulary) {
      return invalid("sampling.logit_bias has the id ", bias.token, ", the vocabulary has ",
                     vocabulary);
    }
    RAG_RETURN_IF_ERROR(in_range("logit_bias", bias.bias, -100, 100));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check(const Generate& command, uint64_t vocabulary, uint64_t context_tokens) {
  if (command.request_id.empty()) return invalid("request_id is empty");
  if (command.max_tokens == 0) return invalid("max_tokens is 0, must be at least 1");
  if (command.answer_tokens >= command.tail.size()) {
    return invalid("tail_tokens has ", command.tail.size(), " tokens, ", command.answer_tokens,
                   " of them the answer's: at least one must be the prompt's");
  }
  const auto in_vocabulary = [vocabulary](const std::vector<uint32_t>& ids) {
    return std::all_of(ids.begin(), ids.end(), [&](uint32_t id) { return id < vocabulary; });
  };
  if (!in_vocabulary(command.tail)) {
    return invalid("tail_tokens has an id outside the vocabulary of ", vocabulary);
  }
  uint64_t tokens = command.tail.size();
  for (size_t i = 0; i < command.segments.size(); ++i) {
    const SegmentSpec& segment = command.segments[i];
    if (segment.tokens.empty()) return invalid("segments[", i, "].tokens is empty");
    if (!in_vocabulary(segment.tokens)) {
      return invalid("segments[", i, "].tokens has an id outside the vocabulary of ", vocabulary);
    }
    tokens += segment.tokens.size();
  }
  if (tokens + command.max_tokens > context_tokens) {
    return invalid("the prompt's ", tokens, " tokens and max_tokens ", command.max_tokens,
                   " are together over the context of ", context_tokens);
  }
  if (command.stop_tokens.size() > kMaxStopTokens) {
    return invalid("stop_tokens has ", command.stop_tokens.size(), " items, at most ",
                   kMaxStopTokens);
  }
  if (command.top_logprobs > kMaxTopLogprobs) {
    return invalid("top_logprobs is ", command.top_logprobs, ", at most ", kMaxTopLogprobs);
  }
  if (command.top_logprobs > 0 && !command.logprobs) {
    return invalid("top_logprobs is ", command.top_logprobs, " without logprobs");
  }
  return check(command.sampling, vocabulary);
}

}  // namespace ragcache::worker
