#include "services/gateway/http/answer_format.h"

#include <algorithm>

#include "services/gateway/http/call.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

OutJson usage_json(const pb::Completed& totals) {
  return {{"prompt_tokens", totals.prompt_tokens()},
          {"completion_tokens", totals.completion_tokens()},
          {"total_tokens", uint64_t{totals.prompt_tokens()} + totals.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", totals.cached_tokens()},
                                     {"cached_documents", totals.cached_documents()}}}};
}

const char* reason_text(pb::FinishReason reason) {
  return reason == pb::FINISH_REASON_LENGTH ? "length" : "stop";
}

OutJson bytes_json(const std::string& token) {
  OutJson bytes = OutJson::array();
  for (char c : token) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

template <typename Token>
OutJson chat_token(const Token& token) {
  return {{"token", token.token()},
          {"logprob", printed_float(token.logprob())},
          {"bytes", bytes_json(token.token())}};
}

OutJson chat_logprobs(const TokenLogprobs& tokens) {
  if (tokens.empty()) return nullptr;
  OutJson content = OutJson::array();
  for (const pb::TokenLogprob& token : tokens) {
    OutJson one = chat_token(token);
    one["top_logprobs"] = OutJson::array();
    for (const auto& alternative : token.top()) {
      one["top_logprobs"].push_back(chat_token(alternative));
    }
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// `characters` is where the first token begins in the text, in characters; it goes on with them.
OutJson completion_logprobs(const TokenLogprobs& tokens, size_t& characters) {
  if (tokens.empty()) return nullptr;
  OutJson texts = OutJson::array(), logprobs = OutJson::array(), tops = OutJson::array(),
          offsets = OutJson::array();
  for (const pb::TokenLogprob& token : tokens) {
    texts.push_back(token.token());
    logprobs.push_back(printed_float(token.logprob()));
    offsets.push_back(characters);
    OutJson top = OutJson::object();
    for (const auto& alternative : token.top()) {
      top[alternative.token()] = printed_float(alternative.logprob());
    }
    // The token itself is always among them.
    if (!token.top().empty()) top[token.token()] = printed_float(token.logprob());
    tops.push_back(token.top().empty() ? OutJson(nullptr) : std::move(top));
    characters += static_cast<size_t>(
        std::count_if(token.token().begin(), token.token().end(),
                      [](unsigned char byte) { return (byte & 0xC0) != 0x80; }));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

OutJson delta_choice(uint32_t index, OutJson delta, OutJson logprobs, OutJson finish_reason) {
  return {{"index", index},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

OutJson text_choice(uint32_t index, const std::string& text, OutJson logprobs,
                    OutJson finish_reason) {
  return {{"text", text},
          {"index", index},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

}  // namespace

OutJson documents_json(const pb::Retrieved& retrieved) {
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : retrieved.documents()) {
    OutJson one = {{"id", document.id()},
                   {"title", document.title()},
                   {"score", printed_float(document.score())},
                   {"rank", documents.size() + 1}};
    if (!document.source_id().empty()) one["source_id"] = document.source_id();
    documents.push_back(std::move(one));
  }
  return documents;
}

OutJson timings_json(const pb::Completed& totals) {
  return {{"search_ms", to_ms(totals.search_us())},
          {"queue_ms", to_ms(totals.queue_us())},
          {"scheduling_us", static_cast<double>(totals.scheduling_ns()) / 1000},
          {"ttft_ms", to_ms(totals.ttft_us())},
          {"total_ms", to_ms(totals.total_us())}};
}

OutJson AnswerFormat::head(bool is_chunk) const {
  return {{"id", head_.id},
          {"object", object(is_chunk)},
          {"created", head_.created},
          {"model", head_.model}};
}

OutJson AnswerFormat::whole(OutJson choices, const pb::Completed& totals) const {
  OutJson value = head(false);
  value["choices"] = std::move(choices);
  value["usage"] = usage_json(totals);
  return value;
}

OutJson AnswerFormat::chunk(OutJson choice) const {
  OutJson value = head(true);
  value["choices"] = OutJson::array({std::move(choice)});
  if (head_.include_usage) value["usage"] = nullptr;
  return value;
}

OutJson AnswerFormat::usage_chunk(const pb::Completed& totals) const {
  OutJson value = head(true);
  value["choices"] = OutJson::array();
  value["usage"] = usage_json(totals);
  value["timings"] = timings_json(totals);
  return value;
}

OutJson ChatFormat::choice(uint32_t index, const Choice& choice) const {
  return {{"index", index},
          {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
          {"logprobs", chat_logprobs(choice.logprobs)},
          {"finish_reason", reason_text(choice.reason)}};
}

OutJson ChatFormat::opening(uint32_t index) const {
  return delta_choice(index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

OutJson ChatFormat::piece(uint32_t index, const std::string& text, const TokenLogprobs& logprobs,
                          Choice&) const {
  return delta_choice(index, {{"content", text}}, chat_logprobs(logprobs), nullptr);
}

OutJson ChatFormat::ending(uint32_t index, pb::FinishReason reason) const {
  return delta_choice(index, OutJson::object(), nullptr, reason_text(reason));
}

OutJson CompletionFormat::choice(uint32_t index, const Choice& choice) const {
  size_t characters = 0;
  return text_choice(index, choice.text, completion_logprobs(choice.logprobs, characters),
                     reason_text(choice.reason));
}

OutJson CompletionFormat::piece(uint32_t index, const std::string& text,
                                const TokenLogprobs& logprobs, Choice& choice) const {
  return text_choice(index, text, completion_logprobs(logprobs, choice.characters), nullptr);
}

OutJson CompletionFormat::ending(uint32_t index, pb::FinishReason reason) const {
  return text_choice(index, "", nullptr, reason_text(reason));
}

}  // namespace ragcache::gateway
