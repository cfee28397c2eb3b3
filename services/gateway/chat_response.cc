#include "services/gateway/chat_response.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

OutJson documents_of(const pb::Retrieved& retrieved) {
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : retrieved.documents()) {
    documents.push_back({{"id", document.id()},
                         {"title", document.title()},
                         {"score", printed_float(document.score())},
                         {"rank", documents.size() + 1}});
  }
  return documents;
}

OutJson usage_of(const pb::Completed& completed) {
  return {{"prompt_tokens", completed.prompt_tokens()},
          {"completion_tokens", completed.completion_tokens()},
          {"total_tokens", uint64_t{completed.prompt_tokens()} + completed.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", completed.cached_tokens()}}}};
}

OutJson timings_of(const pb::Completed& completed) {
  const auto ms = [](uint64_t us) { return static_cast<double>(us) / 1000; };
  return {{"search_ms", ms(completed.search_us())},
          {"queue_ms", ms(completed.queue_us())},
          {"ttft_ms", ms(completed.ttft_us())},
          {"total_ms", ms(completed.total_us())}};
}

const char* reason_of(const pb::Completed& completed) {
  return completed.reason() == pb::FINISH_REASON_LENGTH ? "length" : "stop";
}

OutJson choice(OutJson delta, OutJson finish_reason) {
  OutJson one = {{"index", 0},
                 {"delta", std::move(delta)},
                 {"logprobs", nullptr},
                 {"finish_reason", std::move(finish_reason)}};
  return OutJson::array({std::move(one)});
}

}  // namespace

OutJson ChatResponse::whole(const std::string& text, const pb::Retrieved& retrieved,
                            const pb::Completed& completed) const {
  OutJson one = {{"index", 0},
                 {"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}},
                 {"logprobs", nullptr},
                 {"finish_reason", reason_of(completed)}};
  return {{"id", id_},
          {"object", "chat.completion"},
          {"created", created_},
          {"model", model_},
          {"choices", OutJson::array({std::move(one)})},
          {"usage", usage_of(completed)},
          {"documents", documents_of(retrieved)},
          {"timings", timings_of(completed)}};
}

OutJson ChatResponse::chunk(OutJson choices) const {
  OutJson value = {{"id", id_},
                   {"object", "chat.completion.chunk"},
                   {"created", created_},
                   {"model", model_},
                   {"choices", std::move(choices)}};
  if (include_usage_) value["usage"] = nullptr;
  return value;
}

OutJson ChatResponse::first_chunk(const pb::Retrieved& retrieved) const {
  OutJson value = chunk(choice({{"role", "assistant"}, {"content", ""}}, nullptr));
  value["documents"] = documents_of(retrieved);
  return value;
}

OutJson ChatResponse::text_chunk(const std::string& text) const {
  return chunk(choice({{"content", text}}, nullptr));
}

OutJson ChatResponse::last_chunk(const pb::Completed& completed) const {
  OutJson value = chunk(choice(OutJson::object(), reason_of(completed)));
  if (!include_usage_) value["timings"] = timings_of(completed);
  return value;
}

OutJson ChatResponse::usage_chunk(const pb::Completed& completed) const {
  OutJson value = chunk(OutJson::array());
  value["usage"] = usage_of(completed);
  value["timings"] = timings_of(completed);
  return value;
}

}  // namespace ragcache::gateway
