#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ragcache::loadgen {

struct CorpusDocument {
  std::string id;
  std::string title;
  std::string text;
  uint32_t tokens = 0;  // once they were counted
};

// Documents of a file, in its order: {"id","title","text"} a line (.gz too), or one object that
// maps titles to {"title","extract"} (leads of Wikipedia articles). INVALID_ARGUMENT names file,
// line and field.
absl::StatusOr<std::vector<CorpusDocument>> read_corpus(const std::string& path);

// Neighbours of one title become one document, under the first one's id, as long as that has at
// most `max_tokens`.
std::vector<CorpusDocument> join_neighbours(std::vector<CorpusDocument> documents,
                                            uint32_t max_tokens);

// Questions of a folder of MMLU's CSV files (with their choices), or of a file or folder of JSONL
// with "question" (NQ-open, SQuAD); files in the order of their names, without those whose name
// contains `exclude` unless that is empty.
absl::StatusOr<std::vector<std::string>> read_questions(const std::string& path,
                                                        const std::string& exclude);

}  // namespace ragcache::loadgen
