#include "services/gateway/http/answer_fields.h"

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/filter.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
namespace pb = controller::v1;

constexpr int64_t kMaxTokenId = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxCompletionLogprobs = 5;

bool is_empty(const json& value) {
  return (value.is_array() || value.is_object()) && value.empty();
}

absl::Status wrong_type(const std::string& name, std::string_view wanted, const json& value) {
  return invalid_field(name, str_cat("must be ", wanted, ", not ", kind_of(value)), "invalid_type");
}

absl::StatusOr<uint32_t> token_id(const std::string& name, const json& value) {
  if (!value.is_number_integer()) return wrong_type(name, "a token id", value);
  // What is beyond int64 is negative here.
  const int64_t id = value.get<int64_t>();
  if (id < 0 || id > kMaxTokenId) {
    return invalid_field(name, str_cat("must be 0 to ", kMaxTokenId, ", not ", value.dump()));
  }
  return static_cast<uint32_t>(id);
}

absl::Status parse_logit_bias(const Fields& fields, v1::GenerationOptions& options) {
  const json* biases = fields.find("logit_bias");
  if (biases == nullptr) return absl::OkStatus();
  if (!biases->is_object()) return wrong_type("logit_bias", "an object", *biases);
  for (const auto& [key, value] : biases->items()) {
    const std::string name = str_cat("logit_bias.", key.substr(0, 100));
    uint32_t token = 0;
    const char* end = key.data() + key.size();
    const auto [rest, fault] = std::from_chars(key.data(), end, token);
    if (fault != std::errc() || rest != end) {
      return invalid_field(name, str_cat("the name must be a token id, 0 to ", kMaxTokenId));
    }
    if (!value.is_number()) return wrong_type(name, "a number", value);
    types::v1::LogitBias& bias = *options.add_logit_bias();
    bias.set_token(token);
    bias.set_bias(value.get<float>());
  }
  return absl::OkStatus();
}

absl::Status parse_stops(const Fields& fields, v1::GenerationOptions& options) {
  if (const json* stop = fields.find("stop")) {
    for (const json& text : stop->is_array() ? *stop : json::array({*stop})) {
      if (!text.is_string()) {
        return invalid_field("stop", "must be a string or an array of strings", "invalid_type");
      }
      options.add_stop(text.get_ref<const std::string&>());
    }
  }
  if (const json* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array()) return wrong_type("stop_token_ids", "an array of token ids", *ids);
    for (size_t i = 0; i < ids->size(); ++i) {
      RAG_ASSIGN_OR_RETURN(const uint32_t id,
                           token_id(str_cat("stop_token_ids[", i, "]"), (*ids)[i]));
      options.add_stop_token_ids(id);
    }
  }
  RAG_ASSIGN_OR_RETURN(const auto ignore_eos, fields.boolean("ignore_eos"));
  options.set_ignore_eos(ignore_eos.value_or(false));
  return absl::OkStatus();
}

// What chat and text completions have in common.
absl::Status parse_generation(const Fields& fields, v1::GenerationOptions& options) {
  using Options = v1::GenerationOptions;
  constexpr std::pair<const char*, void (Options::*)(double)> kNumbers[] = {
      {"temperature", &Options::set_temperature},
      {"top_p", &Options::set_top_p},
      {"min_p", &Options::set_min_p},
      {"presence_penalty", &Options::set_presence_penalty},
      {"frequency_penalty", &Options::set_frequency_penalty},
      {"repetition_penalty", &Options::set_repetition_penalty}};
  for (const auto& [name, set] : kNumbers) {
    RAG_ASSIGN_OR_RETURN(const auto value, fields.number(name));
    if (value) (options.*set)(*value);
  }
  constexpr std::pair<const char*, void (Options::*)(int64_t)> kIntegers[] = {
      {"max_tokens", &Options::set_max_tokens},
      {"n", &Options::set_n},
      {"top_k", &Options::set_top_k},
      {"seed", &Options::set_seed}};
  for (const auto& [name, set] : kIntegers) {
    RAG_ASSIGN_OR_RETURN(const auto value, fields.integer(name));
    if (value) (options.*set)(*value);
  }
  RAG_RETURN_IF_ERROR(parse_logit_bias(fields, options));
  return parse_stops(fields, options);
}

absl::StatusOr<StreamOptions> parse_stream(const Fields& fields) {
  StreamOptions options;
  RAG_ASSIGN_OR_RETURN(const auto stream, fields.boolean("stream"));
  options.stream = stream.value_or(false);
  const json* value = fields.find("stream_options");
  if (value == nullptr) return options;
  if (!options.stream) {
    return invalid_field("stream_options", "is only allowed with stream = true");
  }
  RAG_ASSIGN_OR_RETURN(const Fields inner, Fields::of(*value, "stream_options.", "stream_options"));
  RAG_ASSIGN_OR_RETURN(const auto usage, inner.boolean("include_usage"));
  options.include_usage = usage.value_or(false);
  inner.ignore({"include_obfuscation"});
  RAG_RETURN_IF_ERROR(inner.refuse_others());
  return options;
}

absl::StatusOr<std::string> parse_model(const Fields& fields) {
  RAG_ASSIGN_OR_RETURN(auto model, fields.text("model", 1, kMaxModelBytes));
  if (!model) return missing_field("model");
  return *std::move(model);
}

// OpenAI's chat parameters that change the answer, each allowed only where it asks for nothing.
absl::Status refuse_unsupported_chat(const Fields& fields) {
  for (const char* name : {"tools", "functions", "audio", "web_search_options"}) {
    const json* value = fields.find(name);
    if (value != nullptr && !is_empty(*value)) return unsupported_field(name, "leave it out");
  }
  for (const char* name : {"tool_choice", "function_call"}) {
    const json* value = fields.find(name);
    if (value != nullptr && *value != "none" && *value != "auto") {
      return unsupported_field(name, "only \"none\" and \"auto\"");
    }
  }
  RAG_ASSIGN_OR_RETURN(const auto store, fields.boolean("store"));
  if (store.value_or(false)) return unsupported_field("store", "only false");
  for (const char* name : {"reasoning_effort", "verbosity"}) {
    if (fields.find(name) != nullptr) return unsupported_field(name, "leave it out");
  }
  if (const json* value = fields.find("modalities");
      value != nullptr && *value != json::array({"text"})) {
    return unsupported_field("modalities", "only [\"text\"]");
  }
  if (const json* value = fields.find("response_format")) {
    RAG_ASSIGN_OR_RETURN(const Fields format,
                         Fields::of(*value, "response_format.", "response_format"));
    const json* type = format.find("type");
    if (type == nullptr || *type != "text") {
      return unsupported_field("response_format", "only {\"type\": \"text\"}");
    }
  }
  fields.ignore({"user", "metadata", "service_tier", "parallel_tool_calls", "prediction",
                 "safety_identifier", "prompt_cache_key", "prompt_cache_retention"});
  return absl::OkStatus();
}

// An unknown role stays unspecified, which is refused where all messages are checked.
pb::Role role_of(std::string_view role) {
  if (role == "system" || role == "developer") return pb::ROLE_SYSTEM;
  if (role == "user") return pb::ROLE_USER;
  return role == "assistant" ? pb::ROLE_ASSISTANT : pb::ROLE_UNSPECIFIED;
}

absl::StatusOr<std::string> parse_content(const Fields& message) {
  const json* content = message.find("content");
  if (content == nullptr) return missing_field(message.path_of("content"));
  if (!content->is_array()) {
    RAG_ASSIGN_OR_RETURN(auto text, message.text("content"));
    return *std::move(text);
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string name = str_cat(message.path_of("content"), "[", i, "]");
    RAG_ASSIGN_OR_RETURN(const Fields part, Fields::of((*content)[i], name + ".", name));
    RAG_ASSIGN_OR_RETURN(const auto type, part.text("type"));
    if (!type) return missing_field(part.path_of("type"));
    if (*type != "text") return unsupported_field(part.path_of("type"), "only \"text\"");
    RAG_ASSIGN_OR_RETURN(const auto piece, part.text("text"));
    if (!piece) return missing_field(part.path_of("text"));
    RAG_RETURN_IF_ERROR(part.refuse_others());
    text += str_cat(i == 0 ? "" : "\n", *piece);
  }
  return text;
}

absl::Status parse_messages(const Fields& fields, v1::ChatRequest& request) {
  const json* messages = fields.find("messages");
  if (messages == nullptr) return missing_field("messages");
  if (!messages->is_array()) return wrong_type("messages", "an array of messages", *messages);
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string name = str_cat("messages[", i, "]");
    RAG_ASSIGN_OR_RETURN(const Fields message, Fields::of((*messages)[i], name + ".", name));
    pb::Message& out = *request.add_messages();
    RAG_ASSIGN_OR_RETURN(const auto role, message.text("role"));
    if (!role) return missing_field(message.path_of("role"));
    out.set_role(role_of(*role));
    RAG_ASSIGN_OR_RETURN(*out.mutable_content(), parse_content(message));
    // What an assistant's message carries when a client sends it back.
    for (const char* extra : {"tool_calls", "function_call", "refusal", "annotations", "audio"}) {
      const json* value = message.find(extra);
      if (value != nullptr && !is_empty(*value)) {
        return unsupported_field(message.path_of(extra), "leave it out");
      }
    }
    message.ignore({"name"});
    RAG_RETURN_IF_ERROR(message.refuse_others());
  }
  return absl::OkStatus();
}

absl::Status parse_rag(const Fields& fields, v1::RagOptions& rag) {
  const json* value = fields.find("rag");
  if (value == nullptr) return absl::OkStatus();
  RAG_ASSIGN_OR_RETURN(const Fields options, Fields::of(*value, "rag.", "rag"));
  RAG_ASSIGN_OR_RETURN(const auto enabled, options.boolean("enabled"));
  if (enabled) rag.set_enabled(*enabled);
  RAG_ASSIGN_OR_RETURN(const auto top_k, options.integer("top_k"));
  if (top_k) rag.set_top_k(*top_k);
  RAG_ASSIGN_OR_RETURN(auto corpus, options.text("corpus", 1));
  if (corpus) rag.set_corpus(*std::move(corpus));
  if (const json* filter = options.find("filter")) {
    RAG_RETURN_IF_ERROR(parse_filter("rag.filter", *filter, *rag.mutable_filter()));
  }
  if (const json* documents = options.find("documents")) {
    if (!documents->is_array() || documents->empty()) {
      return invalid_field("rag.documents", "must be an array of at least one id");
    }
    for (size_t i = 0; i < documents->size(); ++i) {
      const json& id = (*documents)[i];
      if (!id.is_string()) return wrong_type(str_cat("rag.documents[", i, "]"), "a string", id);
      rag.add_documents(id.get_ref<const std::string&>());
    }
  }
  return options.refuse_others();
}

bool is_token_array(const json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

// A string or an array of token ids.
absl::Status parse_part(const std::string& name, const json& value, pb::RawPrompt::Part& part) {
  if (value.is_string()) {
    part.set_text(value.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (!is_token_array(value)) return wrong_type(name, "a string or an array of token ids", value);
  auto& ids = *part.mutable_tokens()->mutable_ids();
  ids.Reserve(static_cast<int>(value.size()));
  for (size_t i = 0; i < value.size(); ++i) {
    RAG_ASSIGN_OR_RETURN(const uint32_t id, token_id(str_cat(name, "[", i, "]"), value[i]));
    ids.Add(id);
  }
  return absl::OkStatus();
}

absl::Status parse_prompts(const Fields& fields, std::vector<v1::CompleteRequest>& requests) {
  const json* prompt = fields.find("prompt");
  if (prompt == nullptr) return missing_field("prompt");
  if (prompt->is_string() || is_token_array(*prompt)) {
    return parse_part("prompt", *prompt, *requests.emplace_back().mutable_prompt()->mutable_tail());
  }
  if (!prompt->is_array() || prompt->empty() || prompt->size() > kMaxPrompts) {
    return invalid_field("prompt", str_cat("must be a string, an array of token ids, or 1 to ",
                                           kMaxPrompts, " of these"));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    RAG_RETURN_IF_ERROR(parse_part(str_cat("prompt[", i, "]"), (*prompt)[i],
                                   *requests.emplace_back().mutable_prompt()->mutable_tail()));
  }
  return absl::OkStatus();
}

absl::Status parse_segments(const Fields& fields, pb::RawPrompt& prompt) {
  const json* segments = fields.find("segments");
  if (segments == nullptr) return absl::OkStatus();
  if (!segments->is_array()) {
    return wrong_type("segments", "an array of strings or arrays of token ids", *segments);
  }
  for (size_t i = 0; i < segments->size(); ++i) {
    RAG_RETURN_IF_ERROR(
        parse_part(str_cat("segments[", i, "]"), (*segments)[i], *prompt.add_segments()));
  }
  return absl::OkStatus();
}

absl::Status refuse_unsupported_completion(const Fields& fields, int64_t n) {
  RAG_ASSIGN_OR_RETURN(const auto echo, fields.boolean("echo"));
  if (echo.value_or(false)) return unsupported_field("echo", "only false");
  RAG_ASSIGN_OR_RETURN(const auto suffix, fields.text("suffix"));
  if (!suffix.value_or("").empty()) return unsupported_field("suffix", "leave it out");
  RAG_ASSIGN_OR_RETURN(const auto best_of, fields.integer("best_of"));
  if (best_of && *best_of != n) return unsupported_field("best_of", "only what n is");
  fields.ignore({"user"});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatBody> parse_chat(const json& body) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  ChatBody chat;
  v1::GenerationOptions& options = *chat.request.mutable_generation();
  RAG_ASSIGN_OR_RETURN(*chat.request.mutable_model(), parse_model(fields));
  RAG_RETURN_IF_ERROR(parse_messages(fields, chat.request));
  RAG_RETURN_IF_ERROR(refuse_unsupported_chat(fields));
  RAG_ASSIGN_OR_RETURN(chat.stream, parse_stream(fields));
  RAG_RETURN_IF_ERROR(parse_generation(fields, options));
  RAG_ASSIGN_OR_RETURN(const auto max_tokens, fields.integer("max_completion_tokens"));
  if (max_tokens) {
    if (options.has_max_tokens() && options.max_tokens() != *max_tokens) {
      return invalid_field("max_tokens", "differs from max_completion_tokens: give one of them");
    }
    options.set_max_tokens(*max_tokens);
  }
  RAG_ASSIGN_OR_RETURN(const auto logprobs, fields.boolean("logprobs"));
  options.set_logprobs(logprobs.value_or(false));
  RAG_ASSIGN_OR_RETURN(const auto top_logprobs, fields.integer("top_logprobs"));
  options.set_top_logprobs(top_logprobs.value_or(0));
  RAG_RETURN_IF_ERROR(parse_rag(fields, *chat.request.mutable_rag()));
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  return chat;
}

absl::StatusOr<CompletionBody> parse_completion(const json& body) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  CompletionBody completion;
  v1::CompleteRequest common;
  v1::GenerationOptions& options = *common.mutable_generation();
  RAG_ASSIGN_OR_RETURN(*common.mutable_model(), parse_model(fields));
  RAG_RETURN_IF_ERROR(parse_prompts(fields, completion.requests));
  RAG_RETURN_IF_ERROR(parse_segments(fields, *common.mutable_prompt()));
  RAG_ASSIGN_OR_RETURN(completion.stream, parse_stream(fields));
  RAG_RETURN_IF_ERROR(parse_generation(fields, options));
  RAG_RETURN_IF_ERROR(refuse_unsupported_completion(fields, options.has_n() ? options.n() : 1));
  RAG_ASSIGN_OR_RETURN(const auto logprobs, fields.integer("logprobs", 0, kMaxCompletionLogprobs));
  options.set_logprobs(logprobs.has_value());
  options.set_top_logprobs(logprobs.value_or(0));
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  for (v1::CompleteRequest& request : completion.requests) request.MergeFrom(common);
  return completion;
}

}  // namespace ragcache::gateway
