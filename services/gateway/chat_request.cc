#include "services/gateway/chat_request.h"

#include <limits>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/json.h"
#include "services/gateway/openai_error.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
namespace pb = controller::v1;

constexpr size_t kMaxContentBytes = 4 << 20;  // the controller's own bound
constexpr size_t kMaxModelBytes = 256;

absl::Status missing(const std::string& name) {
  return invalid_field(name, "is required", "missing_required_parameter");
}

absl::Status unsupported(const std::string& name, std::string_view only) {
  return invalid_field(name, str_cat("is not supported; ", only), "unsupported_parameter");
}

bool is_empty(const json& value) {
  return (value.is_array() || value.is_object()) && value.empty();
}

// OpenAI's parameters that change the answer, each allowed only where it asks for nothing.
absl::Status check_unsupported(const Fields& fields) {
  for (const char* name : {"tools", "functions", "logit_bias", "audio", "web_search_options"}) {
    const json* value = fields.find(name);
    if (value != nullptr && !is_empty(*value)) return unsupported(name, "leave it out");
  }
  for (const char* name : {"tool_choice", "function_call"}) {
    const json* value = fields.find(name);
    if (value != nullptr && *value != "none" && *value != "auto") {
      return unsupported(name, "only \"none\" and \"auto\"");
    }
  }
  for (const char* name : {"logprobs", "store"}) {
    RAG_ASSIGN_OR_RETURN(const auto value, fields.boolean(name));
    if (value.value_or(false)) return unsupported(name, "only false");
  }
  for (const char* name : {"top_logprobs", "presence_penalty", "frequency_penalty"}) {
    const json* value = fields.find(name);
    if (value != nullptr && *value != 0) return unsupported(name, "only 0");
  }
  for (const char* name : {"reasoning_effort", "verbosity"}) {
    if (fields.find(name) != nullptr) return unsupported(name, "leave it out");
  }
  if (const json* value = fields.find("modalities");
      value != nullptr && *value != json::array({"text"})) {
    return unsupported("modalities", "only [\"text\"]");
  }
  if (const json* value = fields.find("response_format")) {
    RAG_ASSIGN_OR_RETURN(const Fields format,
                         Fields::of(*value, "response_format.", "response_format"));
    const json* type = format.find("type");
    if (type == nullptr || *type != "text") {
      return unsupported("response_format", "only {\"type\": \"text\"}");
    }
  }
  RAG_ASSIGN_OR_RETURN(const auto n, fields.integer("n", 1, 128));
  if (n.value_or(1) != 1) return unsupported("n", "only 1");
  return fields.refuse_others(
      {"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed",
       "stop", "stream", "stream_options", "n", "rag",
       // Checked above.
       "tools", "functions", "logit_bias", "audio", "web_search_options", "tool_choice",
       "function_call", "logprobs", "store", "top_logprobs", "presence_penalty",
       "frequency_penalty", "reasoning_effort", "verbosity", "modalities", "response_format",
       // Without influence on the answer.
       "user", "metadata", "service_tier", "parallel_tool_calls", "prediction", "safety_identifier",
       "prompt_cache_key", "prompt_cache_retention"});
}

absl::StatusOr<pb::Role> parse_role(const Fields& message) {
  RAG_ASSIGN_OR_RETURN(const auto role, message.text("role", 1, 32));
  if (!role) return missing(message.path_of("role"));
  if (*role == "system" || *role == "developer") return pb::ROLE_SYSTEM;
  if (*role == "user") return pb::ROLE_USER;
  if (*role == "assistant") return pb::ROLE_ASSISTANT;
  return invalid_field(message.path_of("role"),
                       "must be one of system, developer, user, assistant");
}

absl::StatusOr<std::string> parse_content(const Fields& message) {
  const json* content = message.find("content");
  if (content == nullptr) return missing(message.path_of("content"));
  if (!content->is_array()) {
    RAG_ASSIGN_OR_RETURN(auto text, message.text("content", 0, kMaxContentBytes));
    return *std::move(text);
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string name = str_cat(message.path_of("content"), "[", i, "]");
    RAG_ASSIGN_OR_RETURN(const Fields part, Fields::of((*content)[i], name + ".", name));
    RAG_ASSIGN_OR_RETURN(const auto type, part.text("type", 1, 64));
    if (!type) return missing(part.path_of("type"));
    if (*type != "text") return unsupported(part.path_of("type"), "only \"text\"");
    RAG_ASSIGN_OR_RETURN(const auto piece, part.text("text", 0, kMaxContentBytes));
    if (!piece) return missing(part.path_of("text"));
    RAG_RETURN_IF_ERROR(part.refuse_others({"type", "text"}));
    text += str_cat(i == 0 ? "" : "\n", *piece);
  }
  return text;
}

absl::Status parse_messages(const Fields& fields, pb::AnswerRequest& answer) {
  const json* messages = fields.find("messages");
  if (messages == nullptr) return missing("messages");
  if (!messages->is_array()) {
    return invalid_field("messages", "must be an array of messages", "invalid_type");
  }
  if (messages->empty() || messages->size() > kMaxMessages) {
    return invalid_field(
        "messages", str_cat("must hold 1 to ", kMaxMessages, " messages, not ", messages->size()));
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string name = str_cat("messages[", i, "]");
    RAG_ASSIGN_OR_RETURN(const Fields message, Fields::of((*messages)[i], name + ".", name));
    pb::Message& out = *answer.add_messages();
    RAG_ASSIGN_OR_RETURN(const pb::Role role, parse_role(message));
    out.set_role(role);
    RAG_ASSIGN_OR_RETURN(*out.mutable_content(), parse_content(message));
    // What an assistant's message carries when a client sends it back.
    for (const char* extra : {"tool_calls", "function_call", "refusal", "annotations", "audio"}) {
      const json* value = message.find(extra);
      if (value != nullptr && !is_empty(*value)) {
        return unsupported(message.path_of(extra), "leave it out");
      }
    }
    RAG_RETURN_IF_ERROR(
        message.refuse_others({"role", "content", "name", "tool_calls", "function_call", "refusal",
                               "annotations", "audio"}));
  }
  const pb::Message& last = answer.messages(answer.messages_size() - 1);
  const std::string name = str_cat("messages[", answer.messages_size() - 1, "]");
  if (last.role() != pb::ROLE_USER) {
    return invalid_field(name + ".role", "the last message must be the user's");
  }
  if (last.content().empty()) return invalid_field(name + ".content", "must not be empty");
  return absl::OkStatus();
}

absl::Status parse_sampling(const Fields& fields, ChatRequest& request) {
  types::v1::Sampling& sampling = *request.answer.mutable_sampling();
  RAG_ASSIGN_OR_RETURN(const auto temperature, fields.number("temperature", 0, 2));
  sampling.set_temperature(static_cast<float>(temperature.value_or(1)));
  RAG_ASSIGN_OR_RETURN(const auto top_p, fields.number("top_p", 0, 1, /*above_min=*/true));
  sampling.set_top_p(static_cast<float>(top_p.value_or(1)));
  RAG_ASSIGN_OR_RETURN(const auto seed, fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                                       std::numeric_limits<int64_t>::max()));
  request.has_seed = seed.has_value();
  sampling.set_seed(static_cast<uint64_t>(seed.value_or(0)));
  return absl::OkStatus();
}

// Leaves max_tokens 0 where the request names none: the controller has a default.
absl::Status parse_lengths(const Fields& fields, pb::AnswerRequest& answer) {
  RAG_ASSIGN_OR_RETURN(const auto old_name, fields.integer("max_tokens", 1, kMaxAnswerTokens));
  RAG_ASSIGN_OR_RETURN(const auto name,
                       fields.integer("max_completion_tokens", 1, kMaxAnswerTokens));
  if (name && old_name && *name != *old_name) {
    return invalid_field("max_tokens", "differs from max_completion_tokens: give one of them");
  }
  answer.set_max_tokens(static_cast<uint32_t>(name.value_or(old_name.value_or(0))));

  const json* stop = fields.find("stop");
  if (stop == nullptr) return absl::OkStatus();
  const json stops = stop->is_array() ? *stop : json::array({*stop});
  if (stops.size() > kMaxStops) {
    return invalid_field("stop",
                         str_cat("must hold at most ", kMaxStops, " strings, not ", stops.size()));
  }
  for (const json& text : stops) {
    if (!text.is_string()) {
      return invalid_field("stop", "must be a string or an array of strings", "invalid_type");
    }
    const auto& value = text.get_ref<const std::string&>();
    if (value.empty() || value.size() > kMaxStopBytes) {
      return invalid_field("stop", str_cat("a string must be 1 to ", kMaxStopBytes,
                                           " bytes long, not ", value.size()));
    }
    answer.add_stop(value);
  }
  return absl::OkStatus();
}

absl::Status parse_retrieval(const Fields& fields, const ChatDefaults& defaults,
                             pb::Retrieval& retrieval) {
  retrieval.set_enabled(true);
  retrieval.set_top_k(defaults.top_k);
  const json* rag = fields.find("rag");
  if (rag == nullptr) return absl::OkStatus();
  RAG_ASSIGN_OR_RETURN(const Fields options, Fields::of(*rag, "rag.", "rag"));
  RAG_ASSIGN_OR_RETURN(const auto enabled, options.boolean("enabled"));
  retrieval.set_enabled(enabled.value_or(true));
  RAG_ASSIGN_OR_RETURN(const auto top_k, options.integer("top_k", 1, defaults.max_top_k));
  retrieval.set_top_k(static_cast<uint32_t>(top_k.value_or(defaults.top_k)));
  RAG_RETURN_IF_ERROR(options.refuse_others({"enabled", "top_k", "documents"}));

  const json* documents = options.find("documents");
  if (documents == nullptr) return absl::OkStatus();
  if (!documents->is_array() || documents->empty() || documents->size() > defaults.max_top_k) {
    return invalid_field("rag.documents",
                         str_cat("must be an array of 1 to ", defaults.max_top_k, " ids"));
  }
  if (!retrieval.enabled()) {
    return invalid_field("rag.documents", "cannot be given with rag.enabled = false");
  }
  for (size_t i = 0; i < documents->size(); ++i) {
    const std::string name = str_cat("rag.documents[", i, "]");
    const json& id = (*documents)[i];
    if (!id.is_string()) return invalid_field(name, "must be a string", "invalid_type");
    const auto& value = id.get_ref<const std::string&>();
    if (value.empty() || value.size() > kMaxDocumentIdBytes) {
      return invalid_field(
          name, str_cat("must be 1 to ", kMaxDocumentIdBytes, " bytes long, not ", value.size()));
    }
    retrieval.add_document_ids(value);
  }
  return absl::OkStatus();
}

absl::Status parse_stream(const Fields& fields, ChatRequest& request) {
  RAG_ASSIGN_OR_RETURN(const auto stream, fields.boolean("stream"));
  request.stream = stream.value_or(false);
  const json* value = fields.find("stream_options");
  if (value == nullptr) return absl::OkStatus();
  if (!request.stream) {
    return invalid_field("stream_options", "is only allowed with stream = true");
  }
  RAG_ASSIGN_OR_RETURN(const Fields options,
                       Fields::of(*value, "stream_options.", "stream_options"));
  RAG_ASSIGN_OR_RETURN(const auto usage, options.boolean("include_usage"));
  request.include_usage = usage.value_or(false);
  return options.refuse_others({"include_usage", "include_obfuscation"});
}

}  // namespace

absl::StatusOr<ChatRequest> parse_chat_request(std::string_view body,
                                               const ChatDefaults& defaults) {
  RAG_ASSIGN_OR_RETURN(const json value, parse_json(body));
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(value, "", "body"));
  ChatRequest request;
  RAG_ASSIGN_OR_RETURN(auto model, fields.text("model", 1, kMaxModelBytes));
  if (!model) return missing("model");
  request.model = *std::move(model);
  RAG_RETURN_IF_ERROR(parse_messages(fields, request.answer));
  RAG_RETURN_IF_ERROR(check_unsupported(fields));
  RAG_RETURN_IF_ERROR(parse_stream(fields, request));
  RAG_RETURN_IF_ERROR(parse_sampling(fields, request));
  RAG_RETURN_IF_ERROR(parse_lengths(fields, request.answer));
  RAG_RETURN_IF_ERROR(parse_retrieval(fields, defaults, *request.answer.mutable_retrieval()));
  return request;
}

}  // namespace ragcache::gateway
