#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/controller/choice.h"
#include "services/controller/config.h"
#include "services/controller/messages.h"
#include "services/controller/metrics.h"

namespace ragcache::controller {

// One request's story: find documents, make the prompt, have the group compute each choice, turn
// tokens into text. Ends, and answers AnswerEnded, exactly once; after that, as after ClientGone,
// it only sees to it that the group and the search let go.
class RequestActor {
 public:
  struct Dependencies {
    Config config;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::shared_ptr<const PromptFormat> format;
    Digest model;  // its fingerprint
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
  void handle(PathReleased released, ActorContext& context);
  void handle(ClientGone gone, ActorContext& context);

  struct SearchAgain {};
  void handle(SearchAgain again, ActorContext& context);

 private:
  enum class State {
    kSearching,
    kPausing,  // before it searches again
    kAnswering,
    kReleasing,  // of a pinned path, instead
    kEnding      // the client has all it gets; choices may still be with the group
  };

  using Plan = absl::StatusOr<std::shared_ptr<const PromptPlan>>;

  void search();
  // The parent of the prompt's first segment: the model, and who shares what follows. Unspecified
  // is the tenant's.
  SegmentId chain_root(types::v1::CacheScope scope) const;
  Plan make_plan(const SegmentId& root, std::span<const types::v1::Document> documents) const;
  void submit(Plan plan, ActorContext& context);
  // What the group knows the choice by.
  std::string id_of(uint32_t choice) const;
  void tell(std::optional<v1::Delta> delta);
  // The client has all of the choice. With the last one the answer is complete.
  void end_choice(uint32_t choice, worker::v1::FinishReason reason, ActorContext& context);
  void complete(ActorContext& context);
  void fail(absl::Status status, ActorContext& context);
  // Has the group let go of the choice.
  void withdraw(Choice& choice, uint32_t index);
  void stop_if_done(ActorContext& context);

  const std::shared_ptr<const Dependencies> dependencies_;
  const v1::AnswerRequest request_;
  const AnswerSink sink_;
  const ActorRef<RequestActor> self_;

  State state_ = State::kSearching;
  TimePoint deadline_{};
  Duration pause_{};  // before the next search
  TimePoint arrived_{};
  TimePoint searched_{};
  std::optional<TimePoint> first_token_;
  std::vector<Choice> choices_;
  uint32_t choices_ended_ = 0;  // for the client
  v1::Completed usage_;
};

}  // namespace ragcache::controller
