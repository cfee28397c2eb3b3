#include "loadgen/workload/questions.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

// question, four choices, answer; some copies have a header.
absl::Status read_mmlu(const std::string& path, std::vector<Question>& questions) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto records = parse_csv(text);
  if (!records.ok()) {
    return absl::InvalidArgumentError(str_cat(path, ": ", records.status().message()));
  }
  for (size_t i = 0; i < records->size(); ++i) {
    const auto& fields = (*records)[i];
    if (i == 0 && fields[0] == "question") continue;
    if (fields.size() != 6) {
      return absl::InvalidArgumentError(
          str_cat(path, ": record ", i + 1, " has ", fields.size(), " fields, must have 6"));
    }
    Question question{fields[0], {}};
    for (size_t choice = 1; choice <= 4; ++choice) question.text += "\n" + fields[choice];
    questions.push_back(std::move(question));
  }
  return absl::OkStatus();
}

absl::Status read_jsonl(const std::string& path, std::vector<Question>& questions) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    Question question;
    RAG_ASSIGN_OR_RETURN(question.text, string_of(line, "question"));
    if (line.contains("answer")) {
      RAG_ASSIGN_OR_RETURN(question.answers, strings_of(line, "answer"));
    }
    questions.push_back(std::move(question));
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::vector<Question>> read_questions(const std::string& path,
                                                     const std::string& exclude) {
  RAG_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                       files_of(path, {".csv", ".csv.gz", ".jsonl", ".jsonl.gz"}));
  std::vector<Question> questions;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (!exclude.empty() && name.find(exclude) != std::string::npos) continue;
    const bool csv = name.ends_with(".csv") || name.ends_with(".csv.gz");
    RAG_RETURN_IF_ERROR(csv ? read_mmlu(file, questions) : read_jsonl(file, questions));
  }
  if (questions.empty()) return absl::InvalidArgumentError(path + ": has no questions");
  return questions;
}

}  // namespace ragcache::loadgen
