#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ragcache::loadgen {

// The scores of SQuAD 1.1's published evaluation (https://github.com/rajpurkar/SQuAD-explorer,
// evaluate-v1.1.py): answers are compared in lower case, without ASCII punctuation, the articles
// a, an and the, and white space but one space between words.
std::string normalized_answer(std::string_view answer);

// Of the right answers, the one that scores best counts; 0 if there is none.
struct AnswerScore {
  double exact = 0;  // 1 if equal, else 0
  double f1 = 0;     // of their words
};
AnswerScore score_answer(std::string_view answer, const std::vector<std::string>& right);

}  // namespace ragcache::loadgen
