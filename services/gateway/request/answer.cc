#include "services/gateway/request/answer.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "common/random.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/filter.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

absl::Status check_integer(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return invalid_field(name, str_cat("must be ", min, " to ", max, ", not ", value));
}

enum class Lower { kIncluded, kExcluded };

// NaN is in no range.
absl::Status check_number(std::string_view name, double value, double min, double max,
                          Lower lower = Lower::kIncluded) {
  const bool excluded = lower == Lower::kExcluded;
  if (value >= min && value <= max && !(excluded && value == min)) return absl::OkStatus();
  return invalid_field(
      name, str_cat("must be ", excluded ? "above " : "", min, " to ", max, ", not ", value));
}

absl::Status fill_sampling(const v1::GenerationOptions& options, types::v1::Sampling& sampling) {
  const double temperature = options.has_temperature() ? options.temperature() : 1;
  RAG_RETURN_IF_ERROR(check_number("temperature", temperature, 0, 2));
  sampling.set_temperature(static_cast<float>(temperature));
  const double top_p = options.has_top_p() ? options.top_p() : 1;
  RAG_RETURN_IF_ERROR(check_number("top_p", top_p, 0, 1, Lower::kExcluded));
  sampling.set_top_p(static_cast<float>(top_p));
  RAG_RETURN_IF_ERROR(check_integer("top_k", options.top_k(), 0, kMaxTopK));
  sampling.set_top_k(static_cast<uint32_t>(options.top_k()));
  RAG_RETURN_IF_ERROR(check_number("min_p", options.min_p(), 0, 1));
  sampling.set_min_p(static_cast<float>(options.min_p()));
  RAG_RETURN_IF_ERROR(check_number("presence_penalty", options.presence_penalty(), -2, 2));
  sampling.set_presence_penalty(static_cast<float>(options.presence_penalty()));
  RAG_RETURN_IF_ERROR(check_number("frequency_penalty", options.frequency_penalty(), -2, 2));
  sampling.set_frequency_penalty(static_cast<float>(options.frequency_penalty()));
  const double repetition = options.has_repetition_penalty() ? options.repetition_penalty() : 1;
  RAG_RETURN_IF_ERROR(check_number("repetition_penalty", repetition, 0, 2, Lower::kExcluded));
  sampling.set_repetition_penalty(static_cast<float>(repetition));
  if (options.logit_bias_size() > kMaxLogitBias) {
    return invalid_field("logit_bias", str_cat("must hold at most ", kMaxLogitBias, " tokens, not ",
                                               options.logit_bias_size()));
  }
  for (const types::v1::LogitBias& bias : options.logit_bias()) {
    RAG_RETURN_IF_ERROR(check_number(str_cat("logit_bias.", bias.token()), bias.bias(),
                                     -kMaxTokenBias, kMaxTokenBias));
    *sampling.add_logit_bias() = bias;
  }
  sampling.set_seed(options.has_seed() ? static_cast<uint64_t>(options.seed()) : random_bits());
  return absl::OkStatus();
}

// Leaves max_tokens 0 where the request names none: the controller has a default.
absl::Status fill_generation(v1::GenerationOptions& options, pb::AnswerRequest& answer) {
  RAG_RETURN_IF_ERROR(fill_sampling(options, *answer.mutable_sampling()));
  if (options.has_max_tokens()) {
    RAG_RETURN_IF_ERROR(check_integer("max_tokens", options.max_tokens(), 1, kMaxAnswerTokens));
  }
  answer.set_max_tokens(static_cast<uint32_t>(options.max_tokens()));
  const int64_t choices = options.has_n() ? options.n() : 1;
  RAG_RETURN_IF_ERROR(check_integer("n", choices, 1, kMaxChoices));
  answer.set_n(static_cast<uint32_t>(choices));

  if (options.stop_size() > kMaxStops) {
    return invalid_field(
        "stop", str_cat("must hold at most ", kMaxStops, " strings, not ", options.stop_size()));
  }
  for (const std::string& stop : options.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return invalid_field("stop", str_cat("a string must be 1 to ", kMaxStopBytes,
                                           " bytes long, not ", stop.size()));
    }
  }
  *answer.mutable_stop() = std::move(*options.mutable_stop());
  if (options.stop_token_ids_size() > kMaxStopTokenIds) {
    return invalid_field("stop_token_ids", str_cat("must hold at most ", kMaxStopTokenIds,
                                                   " ids, not ", options.stop_token_ids_size()));
  }
  *answer.mutable_stop_token_ids() = std::move(*options.mutable_stop_token_ids());
  answer.set_ignore_eos(options.ignore_eos());

  RAG_RETURN_IF_ERROR(check_integer("top_logprobs", options.top_logprobs(), 0, kMaxTopLogprobs));
  if (options.top_logprobs() > 0 && !options.logprobs()) {
    return invalid_field("top_logprobs", "is only allowed with logprobs = true");
  }
  answer.set_logprobs(options.logprobs());
  answer.set_top_logprobs(static_cast<uint32_t>(options.top_logprobs()));
  return absl::OkStatus();
}

absl::Status check_messages(const pb::AnswerRequest& answer) {
  const int count = answer.messages_size();
  if (count == 0 || count > kMaxMessages) {
    return invalid_field("messages",
                         str_cat("must hold 1 to ", kMaxMessages, " messages, not ", count));
  }
  for (int i = 0; i < count; ++i) {
    const pb::Message& message = answer.messages(i);
    const std::string name = str_cat("messages[", i, "]");
    if (message.role() == pb::ROLE_UNSPECIFIED || !pb::Role_IsValid(message.role())) {
      return invalid_field(name + ".role", "must be one of system, developer, user, assistant");
    }
    RAG_RETURN_IF_ERROR(check_bytes(name + ".content", message.content(), 0, kMaxContentBytes));
  }
  const pb::Message& last = answer.messages(count - 1);
  const std::string name = str_cat("messages[", count - 1, "]");
  if (last.role() != pb::ROLE_USER) {
    return invalid_field(name + ".role", "the last message must be the user's");
  }
  if (last.content().empty()) return invalid_field(name + ".content", "must not be empty");
  return absl::OkStatus();
}

absl::Status fill_retrieval(v1::RagOptions& rag, const RagLimits& limits,
                            pb::Retrieval& retrieval) {
  retrieval.set_enabled(rag.has_enabled() ? rag.enabled() : true);
  const int64_t top_k = rag.has_top_k() ? rag.top_k() : limits.default_top_k;
  RAG_RETURN_IF_ERROR(check_integer("rag.top_k", top_k, 1, limits.max_top_k));
  retrieval.set_top_k(static_cast<uint32_t>(top_k));
  RAG_RETURN_IF_ERROR(check_corpus("rag.corpus", rag.corpus()));
  retrieval.set_corpus(std::move(*rag.mutable_corpus()));
  RAG_RETURN_IF_ERROR(check_filter("rag.filter", rag.filter()));
  if (rag.has_filter()) retrieval.mutable_filter()->Swap(rag.mutable_filter());

  if (rag.documents().empty()) return absl::OkStatus();
  if (!retrieval.enabled()) {
    return invalid_field("rag.documents", "cannot be given with rag.enabled = false");
  }
  if (retrieval.has_filter()) {
    return invalid_field("rag.documents", "cannot be given with rag.filter: nothing is searched");
  }
  if (static_cast<uint32_t>(rag.documents_size()) > limits.max_top_k) {
    return invalid_field("rag.documents", str_cat("must hold at most ", limits.max_top_k,
                                                  " ids, not ", rag.documents_size()));
  }
  RAG_RETURN_IF_ERROR(check_stored_ids("rag.documents", rag.documents()));
  *retrieval.mutable_document_ids() = std::move(*rag.mutable_documents());
  return absl::OkStatus();
}

absl::Status check_part(const std::string& name, const pb::RawPrompt::Part& part) {
  if (part.has_tokens()) {
    const int count = part.tokens().ids_size();
    if (count >= 1 && count <= kMaxPromptTokens) return absl::OkStatus();
    return invalid_field(name,
                         str_cat("must hold 1 to ", kMaxPromptTokens, " token ids, not ", count));
  }
  return check_bytes(name, part.text(), 1, kMaxContentBytes);
}

}  // namespace

absl::StatusOr<pb::AnswerRequest> to_answer(v1::ChatRequest request, const RagLimits& limits) {
  pb::AnswerRequest answer;
  *answer.mutable_messages() = std::move(*request.mutable_messages());
  RAG_RETURN_IF_ERROR(check_messages(answer));
  RAG_RETURN_IF_ERROR(fill_generation(*request.mutable_generation(), answer));
  RAG_RETURN_IF_ERROR(fill_retrieval(*request.mutable_rag(), limits, *answer.mutable_retrieval()));
  return answer;
}

absl::StatusOr<pb::AnswerRequest> to_answer(v1::CompleteRequest request) {
  pb::AnswerRequest answer;
  *answer.mutable_raw_prompt() = std::move(*request.mutable_prompt());
  const pb::RawPrompt& prompt = answer.raw_prompt();
  RAG_RETURN_IF_ERROR(check_part("prompt", prompt.tail()));
  if (prompt.segments_size() > kMaxSegments) {
    return invalid_field("segments", str_cat("must hold at most ", kMaxSegments, " segments, not ",
                                             prompt.segments_size()));
  }
  for (int i = 0; i < prompt.segments_size(); ++i) {
    RAG_RETURN_IF_ERROR(check_part(str_cat("segments[", i, "]"), prompt.segments(i)));
  }
  RAG_RETURN_IF_ERROR(fill_generation(*request.mutable_generation(), answer));
  return answer;
}

absl::Status check_max_tokens(const pb::AnswerRequest& answer, uint32_t context_tokens) {
  if (answer.max_tokens() <= context_tokens) return absl::OkStatus();
  return invalid_field("max_tokens", str_cat("must be 1 to ", context_tokens,
                                             ", the model's context, not ", answer.max_tokens()));
}

}  // namespace ragcache::gateway
