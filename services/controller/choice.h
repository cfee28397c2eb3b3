#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ragcache/controller/v1/controller.pb.h"
#include "ragcache/worker/v1/worker.pb.h"
#include "services/controller/prompt/answer_text.h"

namespace ragcache::controller {

// One choice of an answer: its text as its tokens come, with their logprobs, and how far it is.
// Owned by a RequestActor.
class Choice {
 public:
  enum class State {
    kAnswering,
    kStopping,  // ended for the client; the group has not let go of it yet
    kDone
  };

  // `drop_space`: as AnswerText.
  Choice(uint32_t index, std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop,
         bool drop_space);

  // What the client is to be told now; none if nothing is. `logprobs` has one for each token, or
  // none.
  std::optional<v1::Delta> append(std::span<const TokenId> tokens,
                                  std::span<const worker::v1::TokenLogprob> logprobs);
  // What was held back, when no more tokens come.
  std::optional<v1::Delta> finish();
  // A stop string was met: the text is complete.
  bool stopped() const { return text_.stopped(); }

  State state = State::kAnswering;

 private:
  std::optional<v1::Delta> delta(AnswerText::Piece piece);
  v1::TokenLogprob translate(TokenId token, const worker::v1::TokenLogprob& from) const;

  const uint32_t index_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  AnswerText text_;
  std::deque<v1::TokenLogprob> logprobs_;  // of tokens whose text is held back
};

}  // namespace ragcache::controller
