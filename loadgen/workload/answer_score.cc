#include "loadgen/workload/answer_score.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace ragcache::loadgen {
namespace {

bool is_ascii_punctuation(UChar32 c) { return c < 0x80 && u_isgraph(c) && !u_isalnum(c); }

bool is_article(const icu::UnicodeString& word) {
  return word == u"a" || word == u"an" || word == u"the";
}

// Words stand between spaces; an article in a word's place is a space too. It need not be the whole
// word: what is neither a letter nor a digit, such as a long dash, may stand beside it.
std::vector<std::string> words_of(std::string_view answer) {
  const icu::UnicodeString text =
      icu::UnicodeString::fromUTF8({answer.data(), static_cast<int32_t>(answer.size())})
          .toLower(icu::Locale::getRoot());
  std::vector<std::string> words;
  icu::UnicodeString word;
  icu::UnicodeString run;  // of letters and digits at the word's end
  const auto end_word = [&] {
    if (!word.isEmpty()) word.toUTF8String(words.emplace_back());
    word.remove();
  };
  const auto end_run = [&] {
    if (is_article(run)) {
      end_word();
    } else {
      word += run;
    }
    run.remove();
  };
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (is_ascii_punctuation(c)) continue;
    if (u_isalnum(c)) {
      run += c;
      continue;
    }
    end_run();
    if (u_isUWhiteSpace(c)) {
      end_word();
    } else {
      word += c;
    }
  }
  end_run();
  end_word();
  return words;
}

double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& right) {
  absl::flat_hash_map<std::string, int> left;
  for (const std::string& word : right) ++left[word];
  int common = 0;
  for (const std::string& word : answer) {
    if (left[word] > 0) {
      --left[word];
      ++common;
    }
  }
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(answer.size());
  const double recall = static_cast<double>(common) / static_cast<double>(right.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

std::string normalized_answer(std::string_view answer) {
  std::string text;
  for (const std::string& word : words_of(answer)) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

AnswerScore score_answer(std::string_view answer, const std::vector<std::string>& right) {
  const std::vector<std::string> words = words_of(answer);
  AnswerScore best;
  for (const std::string& each : right) {
    const std::vector<std::string> right_words = words_of(each);
    if (words == right_words) best.exact = 1;
    best.f1 = std::max(best.f1, f1_of(words, right_words));
  }
  return best;
}

}  // namespace ragcache::loadgen
