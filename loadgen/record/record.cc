#include "loadgen/record/record.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/record/retriever.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/report_file.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/questions.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/token_counter.h"

namespace ragcache::loadgen {
namespace {

struct QuestionSet {
  std::string name;
  std::vector<std::string> texts;
};

std::string trace_of(const std::vector<std::vector<uint32_t>>& found,
                     std::span<const CorpusDocument> documents) {
  std::string lines;
  for (const std::vector<uint32_t>& places : found) {
    nlohmann::json request = nlohmann::json::array();
    for (const uint32_t place : places) {
      request.push_back({{"id", documents[place].id}, {"tokens", documents[place].tokens}});
    }
    lines += nlohmann::json{{"documents", request}}.dump() + "\n";
  }
  return lines;
}

}  // namespace

absl::Status record(const RecordCommand& command) {
  std::vector<QuestionSet> sets;
  for (const std::string& argument : command.questions) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos || argument.find('/') < equals) {
      return absl::InvalidArgumentError(
          str_cat("--questions: is \"", argument, "\", must be NAME=PATH"));
    }
    RAG_ASSIGN_OR_RETURN(std::vector<Question> questions,
                         read_questions(argument.substr(equals + 1), command.exclude));
    sample(questions, command.max_questions, command.seed);
    QuestionSet& set = sets.emplace_back(QuestionSet{argument.substr(0, equals), {}});
    for (Question& question : questions) set.texts.push_back(std::move(question.text));
  }
  RAG_ASSIGN_OR_RETURN(const TokenCounter count_tokens, token_counter(command.model));
  std::optional<Progress> progress;
  const auto on_progress = [&](uint64_t done, uint64_t all) {
    if (!progress) progress.emplace("passages tokenised", all);
    progress->show(done);
  };
  RAG_ASSIGN_OR_RETURN(const std::vector<CorpusDocument> documents,
                       read_corpora({.paths = command.corpora,
                                     .doc_tokens = command.doc_tokens,
                                     .documents = command.corpus_documents,
                                     .on_progress = on_progress},
                                    command.seed, count_tokens));
  RAG_ASSIGN_OR_RETURN(const auto retriever, Retriever::create(command.embedding_model, documents));
  for (const QuestionSet& set : sets) {
    RAG_ASSIGN_OR_RETURN(const auto found, retriever->find(set.texts, command.top_k));
    const std::string lines = trace_of(found, documents);
    RAG_RETURN_IF_ERROR(write_report(str_cat(command.out, "/", set.name, ".jsonl"), lines));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
