#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "google/protobuf/repeated_field.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "services/gateway/request/json.h"

namespace ragcache::gateway {

using TokenLogprobs = google::protobuf::RepeatedPtrField<controller::v1::TokenLogprob>;

// One choice of an answer, as far as it has come.
struct Choice {
  std::string text;
  TokenLogprobs logprobs;
  bool ended = false;
  controller::v1::FinishReason reason = controller::v1::FINISH_REASON_UNSPECIFIED;
  size_t characters = 0;  // that the tokens of earlier chunks began
};

// The JSON of one request's answer, whole and as stream chunks. What chat and text completions
// differ in is left to them. Additions to OpenAI's: `documents` and `timings`.
class AnswerFormat {
 public:
  // What every object begins with.
  struct Head {
    std::string id;
    std::string model;
    int64_t created;
    bool include_usage;  // chunks say "usage": null, until the last one tells
  };

  explicit AnswerFormat(Head head) : head_(std::move(head)) {}
  virtual ~AnswerFormat() = default;

  OutJson whole(OutJson choices, const controller::v1::Completed& totals) const;
  OutJson chunk(OutJson choice) const;
  // No choice, but the usage and timings.
  OutJson usage_chunk(const controller::v1::Completed& totals) const;

  virtual OutJson choice(uint32_t index, const Choice& choice) const = 0;
  // The choice of a chunk: its beginning (null if nothing is said then), a piece of text with the
  // tokens that came with it, its end.
  virtual OutJson opening(uint32_t index) const = 0;
  virtual OutJson piece(uint32_t index, const std::string& text, const TokenLogprobs& logprobs,
                        Choice& choice) const = 0;
  virtual OutJson ending(uint32_t index, controller::v1::FinishReason reason) const = 0;

 private:
  virtual const char* object(bool is_chunk) const = 0;
  OutJson head(bool is_chunk) const;

  const Head head_;
};

class ChatFormat : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;
  OutJson choice(uint32_t index, const Choice& choice) const override;
  OutJson opening(uint32_t index) const override;
  OutJson piece(uint32_t index, const std::string& text, const TokenLogprobs& logprobs,
                Choice& choice) const override;
  OutJson ending(uint32_t index, controller::v1::FinishReason reason) const override;

 private:
  const char* object(bool is_chunk) const override {
    return is_chunk ? "chat.completion.chunk" : "chat.completion";
  }
};

class CompletionFormat : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;
  OutJson choice(uint32_t index, const Choice& choice) const override;
  OutJson opening(uint32_t) const override { return nullptr; }
  OutJson piece(uint32_t index, const std::string& text, const TokenLogprobs& logprobs,
                Choice& choice) const override;
  OutJson ending(uint32_t index, controller::v1::FinishReason reason) const override;

 private:
  const char* object(bool) const override { return "text_completion"; }
};

// [{"id", "title", "score", "rank"}], of pieces of long documents with "source_id".
OutJson documents_json(const controller::v1::Retrieved& retrieved);
OutJson timings_json(const controller::v1::Completed& totals);

}  // namespace ragcache::gateway
