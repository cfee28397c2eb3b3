#include "services/controller/validate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace ragcache::controller {
namespace {

constexpr int kMaxMessages = 1024;
constexpr size_t kMaxPromptBytes = 4 << 20;
constexpr int kMaxSegments = 256;
constexpr size_t kMaxTenantBytes = 256;
constexpr uint32_t kMaxChoices = 16;
constexpr int kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr int kMaxStopTokens = 64;
constexpr int kMaxLogitBiases = 1024;
constexpr uint32_t kMaxTopLogprobs = 20;

template <typename... Text>
absl::Status invalid(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

absl::Status at_most(const char* field, uint64_t items, uint64_t most) {
  if (items <= most) return absl::OkStatus();
  return invalid(field, ": has ", items, " items, at most ", most);
}

absl::Status in_range(const char* field, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return invalid(field, ": is ", value, ", must be from ", least, " to ", most);
}

absl::Status check_bytes(const char* field, size_t bytes) {
  if (bytes <= kMaxPromptBytes) return absl::OkStatus();
  return invalid(field, ": the prompt's texts are ", bytes, " bytes, at most ", kMaxPromptBytes);
}

absl::Status check_messages(const v1::AnswerRequest& request) {
  if (request.messages().empty()) return invalid("messages: must not be empty");
  RAG_RETURN_IF_ERROR(at_most("messages", request.messages_size(), kMaxMessages));
  size_t bytes = 0;
  for (int i = 0; i < request.messages_size(); ++i) {
    const v1::Message& message = request.messages(i);
    if (message.role() == v1::ROLE_UNSPECIFIED || !v1::Role_IsValid(message.role())) {
      return invalid("messages[", i, "].role: must be system, user or assistant");
    }
    if (message.role() == v1::ROLE_SYSTEM && i > 0) {
      return invalid("messages[", i, "].role: only the first may be system");
    }
    bytes += message.content().size();
  }
  const v1::Message& last = request.messages(request.messages_size() - 1);
  if (last.role() != v1::ROLE_USER || last.content().empty()) {
    return invalid("messages: the last one must be the user's and not empty");
  }
  return check_bytes("messages", bytes);
}

absl::Status check_raw_prompt(const v1::AnswerRequest& request) {
  if (!request.messages().empty() || request.retrieval().enabled()) {
    return invalid("raw_prompt: comes instead of messages and retrieval");
  }
  const v1::RawPrompt& prompt = request.raw_prompt();
  RAG_RETURN_IF_ERROR(at_most("segments", prompt.segments_size(), kMaxSegments));
  size_t bytes = 0;
  for (int i = 0; i < prompt.segments_size(); ++i) {
    if (prompt.segments(i).kind_case() == v1::RawPrompt::Part::KIND_NOT_SET) {
      return invalid("segments[", i, "]: must be a text or token ids");
    }
    bytes += prompt.segments(i).text().size();
  }
  if (prompt.tail().kind_case() == v1::RawPrompt::Part::KIND_NOT_SET) {
    return invalid("prompt: must be a text or token ids");
  }
  return check_bytes("prompt", bytes + prompt.tail().text().size());
}

absl::Status check_retrieval(const v1::Retrieval& retrieval) {
  RAG_RETURN_IF_ERROR(
      at_most("rag.documents", retrieval.document_ids_size(), kMaxRequestDocuments));
  if (!retrieval.enabled()) return absl::OkStatus();
  if (!retrieval.document_ids().empty()) {
    if (retrieval.filter().conditions().empty()) return absl::OkStatus();
    return invalid("rag.filter: is for searches; rag.documents names what is used");
  }
  if (retrieval.top_k() < 1 || retrieval.top_k() > kMaxRequestDocuments) {
    return invalid("rag.top_k: is ", retrieval.top_k(), ", must be from 1 to ",
                   kMaxRequestDocuments);
  }
  return absl::OkStatus();
}

absl::Status check_sampling(const types::v1::Sampling& sampling, uint32_t vocabulary) {
  RAG_RETURN_IF_ERROR(in_range("temperature", sampling.temperature(), 0, 2));
  if (!(sampling.top_p() > 0 && sampling.top_p() <= 1)) {
    return invalid("top_p: is ", sampling.top_p(), ", must be over 0 and at most 1");
  }
  RAG_RETURN_IF_ERROR(in_range("min_p", sampling.min_p(), 0, 1));
  RAG_RETURN_IF_ERROR(in_range("presence_penalty", sampling.presence_penalty(), -2, 2));
  RAG_RETURN_IF_ERROR(in_range("frequency_penalty", sampling.frequency_penalty(), -2, 2));
  RAG_RETURN_IF_ERROR(in_range("repetition_penalty", sampling.repetition_penalty(), 0, 2));
  RAG_RETURN_IF_ERROR(at_most("logit_bias", sampling.logit_bias_size(), kMaxLogitBiases));
  for (const types::v1::LogitBias& bias : sampling.logit_bias()) {
    if (bias.token() >= vocabulary) {
      return invalid("logit_bias: has the token id ", bias.token(), ", the model's vocabulary has ",
                     vocabulary);
    }
    RAG_RETURN_IF_ERROR(in_range("logit_bias", bias.bias(), -100, 100));
  }
  return absl::OkStatus();
}

absl::Status check_end(const v1::AnswerRequest& request, uint32_t vocabulary) {
  RAG_RETURN_IF_ERROR(at_most("stop", request.stop_size(), kMaxStopStrings));
  for (const std::string& stop : request.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return invalid("stop: a string is ", stop.size(), " bytes, must be from 1 to ",
                     kMaxStopBytes);
    }
  }
  RAG_RETURN_IF_ERROR(at_most("stop_token_ids", request.stop_token_ids_size(), kMaxStopTokens));
  for (const uint32_t id : request.stop_token_ids()) {
    if (id >= vocabulary) {
      return invalid("stop_token_ids: has the token id ", id, ", the model's vocabulary has ",
                     vocabulary);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const v1::AnswerRequest& request, uint32_t vocabulary) {
  if (request.request_id().empty()) return invalid("request_id: must not be empty");
  if (request.tenant().size() > kMaxTenantBytes) {
    return invalid("tenant: is ", request.tenant().size(), " bytes, at most ", kMaxTenantBytes);
  }
  RAG_RETURN_IF_ERROR(request.has_raw_prompt() ? check_raw_prompt(request)
                                               : check_messages(request));
  RAG_RETURN_IF_ERROR(check_retrieval(request.retrieval()));
  RAG_RETURN_IF_ERROR(check_sampling(request.sampling(), vocabulary));
  RAG_RETURN_IF_ERROR(check_end(request, vocabulary));
  if (request.path_action() != v1::PATH_ACTION_UNSPECIFIED && request.has_raw_prompt()) {
    return invalid("path_action: is for documents, not for a raw prompt");
  }
  if (request.n() > kMaxChoices) {
    return invalid("n: is ", request.n(), ", at most ", kMaxChoices);
  }
  if (request.top_logprobs() > kMaxTopLogprobs) {
    return invalid("top_logprobs: is ", request.top_logprobs(), ", at most ", kMaxTopLogprobs);
  }
  if (request.top_logprobs() > 0 && !request.logprobs()) {
    return invalid("top_logprobs: needs logprobs");
  }
  return absl::OkStatus();
}

}  // namespace ragcache::controller
