#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/http/sse.h"
#include "common/status.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/http_call.h"

namespace ragcache {
namespace {

using nlohmann::json;

absl::StatusOr<json> request_body(const AskCommand& command) {
  json messages = json::array();
  if (!command.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", command.system}});
  }
  messages.push_back({{"role", "user"}, {"content", command.question}});
  json rag = {{"enabled", !command.no_rag}};
  if (command.top_k) rag["top_k"] = *command.top_k;
  if (!command.documents.empty()) rag["documents"] = command.documents;
  if (!command.corpus.empty()) rag["corpus"] = command.corpus;
  if (!command.filter.empty()) {
    rag["filter"] = json::parse(command.filter, nullptr, false);
    if (!rag["filter"].is_object()) {
      return absl::InvalidArgumentError("--filter: must be a JSON object");
    }
  }
  json body = {{"model", "ragcache"},
               {"messages", std::move(messages)},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"temperature", command.temperature},
               {"rag", std::move(rag)}};
  if (command.max_tokens) body["max_tokens"] = *command.max_tokens;
  if (command.seed) body["seed"] = *command.seed;
  return body;
}

// What the chunks of a streamed answer add up to.
struct Answer {
  std::string text;
  json documents = json::array();
  json usage = json::object();
  json timings = json::object();
  bool done = false;

  // Returns the new piece of text.
  absl::StatusOr<std::string> take(const std::string& data) {
    if (data == "[DONE]") {
      done = true;
      return "";
    }
    const json chunk = json::parse(data, nullptr, false);
    if (!chunk.is_object()) return absl::InternalError("the stream has a chunk that is not JSON");
    if (chunk.contains("error")) {
      return absl::UnavailableError("the answer broke off: " + chunk["error"].dump());
    }
    if (chunk.contains("documents")) documents = chunk["documents"];
    if (chunk.contains("usage") && chunk["usage"].is_object()) usage = chunk["usage"];
    if (chunk.contains("timings")) timings = chunk["timings"];
    std::string piece;
    for (const json& choice : chunk.value("choices", json::array())) {
      const json delta = choice.value("delta", json::object());
      if (delta.contains("content") && delta["content"].is_string()) {
        piece += delta["content"].get<std::string>();
      }
    }
    text += piece;
    return piece;
  }
};

void print_summary(const Answer& answer) {
  std::printf("\n");
  for (const json& document : answer.documents) {
    std::printf("  [%d] %s (%s, %.3f)\n", document.value("rank", 0),
                document.value("title", "").c_str(), document.value("id", "").c_str(),
                document.value("score", 0.0));
  }
  const json details = answer.usage.value("prompt_tokens_details", json::object());
  std::printf("search %.1f ms, first token %.1f ms, total %.1f ms, cached %d of %d prompt tokens\n",
              answer.timings.value("search_ms", 0.0), answer.timings.value("ttft_ms", 0.0),
              answer.timings.value("total_ms", 0.0), details.value("cached_tokens", 0),
              answer.usage.value("prompt_tokens", 0));
}

}  // namespace

absl::Status ask(const AskCommand& command) {
  http::ClientRequest request;
  request.method = "POST";
  request.target = "/v1/chat/completions";
  request.headers.add("Content-Type", "application/json");
  if (!command.api_key.empty()) {
    request.headers.add("Authorization", "Bearer " + command.api_key);
  }
  // Bytes that are not UTF-8 would make dump() throw; the server is to judge them.
  RAG_ASSIGN_OR_RETURN(const json body, request_body(command));
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);

  Answer answer;
  http::SseParser events([&](const http::SseEvent& event) -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const std::string piece, answer.take(event.data));
    if (!command.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    return absl::OkStatus();
  });
  RAG_ASSIGN_OR_RETURN(auto client, http::Client::create(command.server));
  std::string error_body;
  RAG_ASSIGN_OR_RETURN(auto response, client.stream(request, [&](const http::Response& head,
                                                                 std::string_view bytes) {
    if (head.status < 400) return events.feed(bytes);
    error_body += bytes;
    return absl::OkStatus();
  }));
  if (response.status >= 400) {
    response.body = std::move(error_body);
    return error_of(response);
  }
  if (!answer.done) return absl::UnavailableError("the answer broke off before its end");
  if (command.json) {
    std::printf("%s\n", json{{"question", command.question},
                             {"answer", answer.text},
                             {"documents", answer.documents},
                             {"usage", answer.usage},
                             {"timings", answer.timings}}
                            .dump()
                            .c_str());
  } else {
    print_summary(answer);
  }
  return absl::OkStatus();
}

}  // namespace ragcache
