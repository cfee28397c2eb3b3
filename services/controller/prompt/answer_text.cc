#include "services/controller/prompt/answer_text.h"

#include <algorithm>
#include <utility>

namespace ragcache::controller {
namespace {

// Length of the longest end of `text` that begins `stop`, but is not all of it.
size_t overlap(const std::string& text, const std::string& stop) {
  const size_t longest = std::min(text.size(), stop.size() - 1);
  for (size_t length = longest; length > 0; --length) {
    if (text.compare(text.size() - length, length, stop, 0, length) == 0) return length;
  }
  return 0;
}

}  // namespace

AnswerText::AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop,
                       bool drop_space)
    : decoder_(std::move(tokenizer)), stop_(std::move(stop)), drop_space_(drop_space) {}

AnswerText::Piece AnswerText::append(std::span<const TokenId> tokens) {
  if (stopped_) return {};
  for (const TokenId token : tokens) {
    tokens_.push_back({released_ + held_.size(), std::nullopt});
    hold(decoder_.push(token));
    if (!decoder_.between_characters()) continue;
    for (auto it = tokens_.rbegin(); it != tokens_.rend() && !it->end.has_value(); ++it) {
      it->end = released_ + held_.size();
    }
  }
  return release(false);
}

AnswerText::Piece AnswerText::finish() {
  if (stopped_) return {};
  hold(decoder_.finish());
  return release(true);
}

void AnswerText::hold(std::string text) {
  if (drop_space_ && !text.empty()) {
    drop_space_ = false;
    if (text.front() == ' ') text.erase(0, 1);
  }
  held_ += text;
}

AnswerText::Piece AnswerText::release(bool all) {
  size_t cut = std::string::npos;
  for (const std::string& stop : stop_) cut = std::min(cut, held_.find(stop));
  Piece piece;
  if (cut != std::string::npos) {
    stopped_ = true;
    const size_t end = released_ + cut;
    // A token without text may end where the stop string begins.
    const auto before_stop = [end](const Extent& token) {
      return token.begin < end || token.end.value_or(std::string::npos) <= end;
    };
    while (!tokens_.empty() && before_stop(tokens_.front())) {
      tokens_.pop_front();
      ++piece.tokens;
    }
    piece.text = held_.substr(0, cut);
    return piece;
  }
  size_t keep = 0;
  if (!all) {
    for (const std::string& stop : stop_) keep = std::max(keep, overlap(held_, stop));
  }
  piece.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, piece.text.size());
  released_ += piece.text.size();
  const auto given_out = [&](const Extent& token) {
    return all || (token.end.has_value() && *token.end <= released_);
  };
  while (!tokens_.empty() && given_out(tokens_.front())) {
    tokens_.pop_front();
    ++piece.tokens;
  }
  return piece;
}

}  // namespace ragcache::controller
