#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/workload/corpus.h"

namespace ragcache::loadgen {

struct SquadQuestion {
  std::string text;
  uint32_t paragraph = 0;  // place in Squad::paragraphs
  std::vector<std::string> answers;
};

struct Squad {
  std::vector<CorpusDocument> paragraphs;  // not counted
  std::vector<SquadQuestion> questions;
};

// SQuAD 1.1's JSON, a file or all of a folder; or a folder of passages.jsonl {"id","title","text"}
// and questions.jsonl {"question","passage","answers"}; .gz too. INVALID_ARGUMENT names file, line
// and field.
absl::StatusOr<Squad> read_squad(const std::string& path);

// Of one file's JSON: whether it is SQuAD's, and its content. `path` is for errors.
bool is_squad(const nlohmann::json& object);
absl::Status add_squad(const std::string& path, const nlohmann::json& object, Squad& squad);

}  // namespace ragcache::loadgen
