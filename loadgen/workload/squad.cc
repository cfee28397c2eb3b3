#include "loadgen/workload/squad.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

// Calls `take` for each object of a list; what it returns gets the object's place put in front.
template <typename Take>
absl::Status for_each_object(const json& object, const char* field, Take&& take) {
  RAG_ASSIGN_OR_RETURN(const json* list, list_of(object, field));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = str_cat(field, "[", i, "]");
    if (!(*list)[i].is_object()) {
      return absl::InvalidArgumentError(place + ": must be an object");
    }
    const absl::Status status = take((*list)[i]);
    if (!status.ok()) return absl::InvalidArgumentError(str_cat(place, ".", status.message()));
  }
  return absl::OkStatus();
}

absl::Status add_article(const json& article, Squad& squad) {
  RAG_ASSIGN_OR_RETURN(const std::string title, string_of(article, "title"));
  uint32_t number = 0;
  return for_each_object(article, "paragraphs", [&](const json& each) -> absl::Status {
    CorpusDocument paragraph{.id = str_cat(title, "/", number++), .title = title};
    RAG_ASSIGN_OR_RETURN(paragraph.text, string_of(each, "context"));
    squad.paragraphs.push_back(std::move(paragraph));
    return for_each_object(each, "qas", [&](const json& qa) -> absl::Status {
      SquadQuestion question{.paragraph = static_cast<uint32_t>(squad.paragraphs.size() - 1)};
      RAG_ASSIGN_OR_RETURN(question.text, string_of(qa, "question"));
      RAG_RETURN_IF_ERROR(for_each_object(qa, "answers", [&](const json& answer) -> absl::Status {
        RAG_ASSIGN_OR_RETURN(question.answers.emplace_back(), string_of(answer, "text"));
        return absl::OkStatus();
      }));
      squad.questions.push_back(std::move(question));
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<Squad> read_lines(const std::string& folder) {
  Squad squad;
  RAG_ASSIGN_OR_RETURN(const std::string passages,
                       file_of(folder, {"passages.jsonl", "passages.jsonl.gz"}));
  RAG_ASSIGN_OR_RETURN(squad.paragraphs, read_corpus(passages));
  absl::flat_hash_map<std::string, uint32_t> places;
  for (size_t i = 0; i < squad.paragraphs.size(); ++i) {
    places[squad.paragraphs[i].id] = static_cast<uint32_t>(i);
  }
  RAG_ASSIGN_OR_RETURN(const std::string path,
                       file_of(folder, {"questions.jsonl", "questions.jsonl.gz"}));
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    SquadQuestion question;
    RAG_ASSIGN_OR_RETURN(question.text, string_of(line, "question"));
    RAG_ASSIGN_OR_RETURN(question.answers, strings_of(line, "answers"));
    RAG_ASSIGN_OR_RETURN(const std::string passage, string_of(line, "passage"));
    const auto place = places.find(passage);
    if (place == places.end()) {
      return absl::InvalidArgumentError(str_cat("passage: ", passage, " is not in ", passages));
    }
    question.paragraph = place->second;
    squad.questions.push_back(std::move(question));
    return absl::OkStatus();
  }));
  return squad;
}

}  // namespace

bool is_squad(const json& object) {
  auto it = object.find("data");
  return it != object.end() && it->is_array();
}

absl::Status add_squad(const std::string& path, const json& object, Squad& squad) {
  const absl::Status status = for_each_object(
      object, "data", [&](const json& article) { return add_article(article, squad); });
  if (!status.ok()) return absl::InvalidArgumentError(str_cat(path, ": ", status.message()));
  return absl::OkStatus();
}

absl::StatusOr<Squad> read_squad(const std::string& path) {
  std::error_code error;
  for (const char* name : {"/passages.jsonl", "/passages.jsonl.gz"}) {
    if (std::filesystem::exists(path + name, error)) return read_lines(path);
  }
  RAG_ASSIGN_OR_RETURN(const std::vector<std::string> files, files_of(path, {".json", ".json.gz"}));
  Squad squad;
  for (const std::string& file : files) {
    RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(file));
    const json object = json::parse(text, nullptr, false);
    if (!object.is_object()) return absl::InvalidArgumentError(file + ": is no JSON object");
    RAG_RETURN_IF_ERROR(add_squad(file, object, squad));
  }
  return squad;
}

}  // namespace ragcache::loadgen
