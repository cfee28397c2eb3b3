#include "loadgen/workload/corpus.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

absl::StatusOr<std::string> string_of(const json& object, const char* field) {
  auto it = object.find(field);
  if (it == object.end() || !it->is_string()) {
    return absl::InvalidArgumentError(str_cat(field, ": must be a string"));
  }
  return it->get<std::string>();
}

absl::Status read_mmlu(const std::string& path, std::vector<std::string>& questions) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto records = parse_csv(text);
  if (!records.ok()) {
    return absl::InvalidArgumentError(str_cat(path, ": ", records.status().message()));
  }
  for (size_t i = 1; i < records->size(); ++i) {  // the first is the header
    const auto& fields = (*records)[i];
    if (fields.size() != 6) {
      return absl::InvalidArgumentError(
          str_cat(path, ": record ", i + 1, " has ", fields.size(), " fields, must have 6"));
    }
    std::string question = fields[0];
    for (size_t choice = 1; choice <= 4; ++choice) question += "\n" + fields[choice];
    questions.push_back(std::move(question));
  }
  return absl::OkStatus();
}

absl::Status read_jsonl(const std::string& path, std::vector<std::string>& questions) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    RAG_ASSIGN_OR_RETURN(std::string question, string_of(line, "question"));
    questions.push_back(std::move(question));
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::vector<CorpusDocument>> read_corpus(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  std::vector<CorpusDocument> documents;
  const json leads = json::parse(text, nullptr, false);
  if (leads.is_object() && !leads.contains("text")) {
    for (const auto& [title, lead] : leads.items()) {
      auto extract = lead.is_object() ? string_of(lead, "extract")
                                      : absl::InvalidArgumentError("must be an object");
      if (!extract.ok()) {
        return absl::InvalidArgumentError(
            str_cat(path, ": ", title, ": ", extract.status().message()));
      }
      documents.push_back({.id = "lead/" + title, .title = title, .text = *std::move(extract)});
    }
    return documents;
  }
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    CorpusDocument document;
    RAG_ASSIGN_OR_RETURN(document.id, string_of(line, "id"));
    RAG_ASSIGN_OR_RETURN(document.text, string_of(line, "text"));
    if (line.contains("title")) {
      RAG_ASSIGN_OR_RETURN(document.title, string_of(line, "title"));
    }
    documents.push_back(std::move(document));
    return absl::OkStatus();
  }));
  return documents;
}

std::vector<CorpusDocument> join_neighbours(std::vector<CorpusDocument> documents,
                                            uint32_t max_tokens) {
  std::vector<CorpusDocument> joined;
  for (CorpusDocument& document : documents) {
    if (!joined.empty() && !document.title.empty() && joined.back().title == document.title &&
        joined.back().tokens + document.tokens <= max_tokens) {
      joined.back().text += "\n" + document.text;
      joined.back().tokens += document.tokens;
    } else {
      joined.push_back(std::move(document));
    }
  }
  return joined;
}

absl::StatusOr<std::vector<std::string>> read_questions(const std::string& path,
                                                        const std::string& exclude) {
  std::vector<std::string> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".csv" || extension == ".jsonl" || extension == ".gz") {
        files.push_back(entry.path().string());
      }
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::vector<std::string> questions;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (!exclude.empty() && name.find(exclude) != std::string::npos) continue;
    RAG_RETURN_IF_ERROR(file.ends_with(".csv") ? read_mmlu(file, questions)
                                               : read_jsonl(file, questions));
  }
  if (questions.empty()) return absl::InvalidArgumentError(path + ": has no questions");
  return questions;
}

}  // namespace ragcache::loadgen
