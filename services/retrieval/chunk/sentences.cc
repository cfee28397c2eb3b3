#include "services/retrieval/chunk/sentences.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/utext.h>

#include <memory>

#include "common/check.h"

namespace ragcache::retrieval {
namespace {

struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

std::unique_ptr<icu::BreakIterator> new_iterator() {
  UErrorCode error = U_ZERO_ERROR;
  std::unique_ptr<icu::BreakIterator> iterator(
      icu::BreakIterator::createSentenceInstance(icu::Locale::getRoot(), error));
  RAG_CHECK(U_SUCCESS(error));  // its rules are compiled into ICU's data
  return iterator;
}

bool goes_on(std::string_view text, size_t end) {
  if (end < 2 || text[end - 1] != '\n') return false;
  if (end == text.size() || text[end] < 'a' || text[end] > 'z') return false;
  // After a blank line, or after the mark that ends a sentence, a small letter begins one.
  const char before = text[end - 2] == '\r' && end > 2 ? text[end - 3] : text[end - 2];
  return std::string_view("\n.!?").find(before) == std::string_view::npos;
}

}  // namespace

std::vector<size_t> sentence_ends(std::string_view text) {
  std::vector<size_t> ends;
  if (text.empty()) return ends;
  // Loading the rules takes longer than most documents.
  static const std::unique_ptr<const icu::BreakIterator> prototype = new_iterator();
  const std::unique_ptr<icu::BreakIterator> iterator(prototype->clone());
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UText, CloseText> view(
      utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error));
  RAG_CHECK(U_SUCCESS(error));
  iterator->setText(view.get(), error);
  RAG_CHECK(U_SUCCESS(error));
  iterator->first();
  for (int32_t at = iterator->next(); at != icu::BreakIterator::DONE; at = iterator->next()) {
    const auto end = static_cast<size_t>(at);
    if (!goes_on(text, end)) ends.push_back(end);
  }
  return ends;
}

}  // namespace ragcache::retrieval
