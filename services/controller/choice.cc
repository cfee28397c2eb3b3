#include "services/controller/choice.h"

#include <algorithm>
#include <utility>

namespace ragcache::controller {

Choice::Choice(uint32_t index, std::shared_ptr<const Tokenizer> tokenizer,
               std::vector<std::string> stop, bool drop_space)
    : index_(index),
      tokenizer_(tokenizer),
      text_(std::move(tokenizer), std::move(stop), drop_space) {}

std::optional<v1::Delta> Choice::append(std::span<const TokenId> tokens,
                                        std::span<const worker::v1::TokenLogprob> logprobs) {
  for (size_t i = 0; i < std::min(tokens.size(), logprobs.size()); ++i) {
    logprobs_.push_back(translate(tokens[i], logprobs[i]));
  }
  return delta(text_.append(tokens));
}

std::optional<v1::Delta> Choice::finish() { return delta(text_.finish()); }

std::optional<v1::Delta> Choice::delta(AnswerText::Piece piece) {
  v1::Delta delta;
  delta.set_choice(index_);
  delta.set_text(std::move(piece.text));
  for (; piece.tokens > 0 && !logprobs_.empty(); --piece.tokens) {
    *delta.add_logprobs() = std::move(logprobs_.front());
    logprobs_.pop_front();
  }
  if (delta.text().empty() && delta.logprobs().empty()) return std::nullopt;
  return delta;
}

v1::TokenLogprob Choice::translate(TokenId token, const worker::v1::TokenLogprob& from) const {
  v1::TokenLogprob to;
  to.set_id(token);
  to.set_token(std::string(tokenizer_->token_bytes(token)));
  to.set_logprob(from.logprob());
  for (int i = 0; i < std::min(from.top_ids_size(), from.top_logprobs_size()); ++i) {
    v1::TokenLogprob::Alternative& alternative = *to.add_top();
    alternative.set_id(from.top_ids(i));
    alternative.set_token(std::string(tokenizer_->token_bytes(from.top_ids(i))));
    alternative.set_logprob(from.top_logprobs(i));
  }
  return to;
}

}  // namespace ragcache::controller
