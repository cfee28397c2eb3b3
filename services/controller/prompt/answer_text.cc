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

AnswerText::AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop)
    : decoder_(std::move(tokenizer)), stop_(std::move(stop)) {}

std::string AnswerText::append(std::span<const TokenId> tokens) {
  if (stopped_) return "";
  held_ += decoder_.push(tokens);
  return release(false);
}

std::string AnswerText::finish() {
  if (stopped_) return "";
  held_ += decoder_.finish();
  return release(true);
}

std::string AnswerText::release(bool all) {
  size_t cut = std::string::npos;
  for (const std::string& stop : stop_) cut = std::min(cut, held_.find(stop));
  if (cut != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, cut);
  }
  size_t keep = 0;
  if (!all) {
    for (const std::string& stop : stop_) keep = std::max(keep, overlap(held_, stop));
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return text;
}

}  // namespace ragcache::controller
