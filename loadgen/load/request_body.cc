#include "loadgen/load/request_body.h"

#include <nlohmann/json.hpp>

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

void add_prompt(json& body, const ChatPrompt& prompt, bool is_ragcache) {
  body["messages"] = json::array({{{"role", "user"}, {"content", prompt.text}}});
  if (prompt.retrieval) {
    if (prompt.retrieval->documents.empty()) {
      body["rag"] = {{"top_k", prompt.retrieval->top_k}};
    } else {
      body["rag"] = {{"documents", prompt.retrieval->documents}};
    }
  } else if (is_ragcache) {
    body["rag"] = {{"enabled", false}};
  }
}

void add_prompt(json& body, const TokenPrompt& prompt, bool is_ragcache) {
  if (is_ragcache) {
    if (!prompt.segments.empty()) body["segments"] = prompt.segments;
    body["prompt"] = prompt.tail;
    return;
  }
  std::vector<TokenId> all;
  for (const std::vector<TokenId>& segment : prompt.segments) {
    all.insert(all.end(), segment.begin(), segment.end());
  }
  all.insert(all.end(), prompt.tail.begin(), prompt.tail.end());
  body["prompt"] = std::move(all);
}

}  // namespace

const char* target_of(const Request& request) {
  return std::holds_alternative<ChatPrompt>(request.prompt) ? "/v1/chat/completions"
                                                            : "/v1/completions";
}

std::string request_body(const Request& request, const EndpointOptions& endpoint,
                         const json& extra) {
  json body = {{"model", endpoint.model},
               {"max_tokens", request.max_tokens},
               {"temperature", 0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (request.ignore_eos && endpoint.segments) body["ignore_eos"] = true;
  std::visit([&](const auto& prompt) { add_prompt(body, prompt, endpoint.segments); },
             request.prompt);
  body.update(extra);
  // Bytes that are not UTF-8 would make dump() throw.
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ragcache::loadgen
