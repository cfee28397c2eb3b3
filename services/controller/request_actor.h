#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/controller/config.h"
#include "services/controller/messages.h"
#include "services/controller/metrics.h"
#include "services/controller/prompt/answer_text.h"

namespace ragcache::controller {

// One request's story: find documents, make the prompt, wait for the group, turn tokens into text.
// Ends, and answers AnswerEnded, exactly once; after ClientGone it only sees to it that the group
// and the search let go.
class RequestActor {
 public:
  struct Dependencies {
    Config config;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::shared_ptr<const PromptFormat> format;
    SegmentId chain_root;
    RetrievalAddress retrieval;
    GroupAddress group;
    std::shared_ptr<Metrics> metrics;
  };

  // `request` has been checked by validate().
  RequestActor(std::shared_ptr<const Dependencies> dependencies, v1::AnswerRequest request,
               AnswerSink sink, ActorRef<RequestActor> self);

  void handle(Start start, ActorContext& context);
  void handle(DocumentsFound found, ActorContext& context);
  void handle(TokensArrived arrived, ActorContext& context);
  void handle(GroupEnded ended, ActorContext& context);
  void handle(ClientGone gone, ActorContext& context);

 private:
  enum class State { kStarting, kSearching, kSubmitted, kStopping, kDone };

  void submit(std::vector<types::v1::Document> documents, ActorContext& context);
  void send_delta(std::string text);
  void complete(worker::v1::FinishReason reason, ActorContext& context);
  void fail(absl::Status status, ActorContext& context);

  const std::shared_ptr<const Dependencies> dependencies_;
  const v1::AnswerRequest request_;
  const AnswerSink sink_;
  const ActorRef<RequestActor> self_;

  State state_ = State::kStarting;
  bool client_gone_ = false;
  AnswerText text_;
  TimePoint arrived_{};
  TimePoint searched_{};
  std::optional<TimePoint> first_token_;
  v1::Completed usage_;
};

// What a caller got wrong, naming field and bound. Limits are named in the .cc.
absl::Status validate(const v1::AnswerRequest& request);

}  // namespace ragcache::controller
