#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ragcache::loadgen {

struct Question {
  std::string text;                  // with its choices, where it has some
  std::vector<std::string> answers;  // each of them right; none: not known
};

// Questions of a folder of MMLU's CSV files (with their choices), or of a file or folder of JSONL
// with "question" and NQ-open's "answer"; .gz too. Files come in the order of their names, without
// those whose name contains `exclude` unless that is empty. INVALID_ARGUMENT names file, line and
// field.
absl::StatusOr<std::vector<Question>> read_questions(const std::string& path,
                                                     const std::string& exclude);

}  // namespace ragcache::loadgen
