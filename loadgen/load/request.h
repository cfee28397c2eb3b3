#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache::loadgen {

// A question to a chat endpoint. With `retrieval` the server adds the documents itself (RAGCache's
// `rag` extension): those named, or the top_k that it finds.
struct ChatPrompt {
  struct Retrieval {
    uint32_t top_k = 0;
    std::vector<std::string> documents;  // ids; if there are any, nothing is searched
  };
  std::string text;
  std::optional<Retrieval> retrieval;
};

// A prompt of token ids to a completions endpoint. RAGCache is told the segments; other servers get
// all of it as one array.
struct TokenPrompt {
  std::vector<std::vector<TokenId>> segments;
  std::vector<TokenId> tail;
  // Ids of the documents that the last segments are, one each. No server is told them.
  std::vector<std::string> documents;
};

struct Request {
  Duration at{};  // after the start of the load
  std::variant<ChatPrompt, TokenPrompt> prompt;
  uint32_t max_tokens = 1;
  // The answer has max_tokens, whatever the model says. RAGCache is told; for other servers an
  // endpoint's `extra` says it as they have it.
  bool ignore_eos = false;
};

// How a request went. Times are after the start of the load; a latency counts from `at`, when it
// should have been sent, not from when it was.
struct Outcome {
  Duration at{};
  Duration sent{};
  std::optional<Duration> first_token;
  Duration end{};
  // Empty: it was answered to its end. Else a kind, a colon and the particulars. Kinds are refused
  // (no connection), timeout, closed (before the answer was whole), "status 503" or whatever it
  // was, malformed (no stream of chunks), server (an error in the stream), stopped (the load ended
  // before the answer did) and "not sent".
  std::string error;
  std::string error_kind() const { return error.substr(0, error.find(':')); }
  // By HTTP: it met a kept connection that had ended, and went again on a new one. If the server
  // had read it before that, it has had it twice.
  bool resent = false;
  std::string text;                    // of the answer
  std::vector<std::string> documents;  // ids that retrieval found or the request named

  // What the server told; 0, or none, if nothing.
  uint32_t prompt_tokens = 0;
  std::optional<uint32_t> cached_tokens;
  std::optional<uint32_t> cached_documents;
  uint32_t completion_tokens = 0;
  std::optional<double> search_ms;
  std::optional<double> queue_ms;
  std::optional<double> scheduling_us;
};

}  // namespace ragcache::loadgen
