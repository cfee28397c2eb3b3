#include "loadgen/record/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/report_file.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/questions.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/token_counter.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/index/flat_index.h"

namespace ragcache::loadgen {
namespace {

// Texts of one job of the embedder, between two lines of progress.
constexpr size_t kBatch = 64;

struct QuestionSet {
  std::string name;
  std::vector<std::string> texts;
};

// [texts.size(), dimension]
absl::StatusOr<std::vector<float>> embed(retrieval::Embedder& embedder,
                                         std::span<const std::string> texts, const char* what) {
  std::vector<float> vectors;
  Progress progress(what, texts.size());
  for (size_t done = 0; done < texts.size(); done += kBatch) {
    const auto batch = texts.subspan(done, std::min(kBatch, texts.size() - done));
    RAG_ASSIGN_OR_RETURN(
        const retrieval::Embeddings embeddings,
        embedder.embed(batch, retrieval::Embedder::Lane::kIngest, std::stop_token()));
    vectors.insert(vectors.end(), embeddings.vectors.begin(), embeddings.vectors.end());
    progress.show(done + batch.size());
  }
  return vectors;
}

absl::StatusOr<std::string> trace_of(const retrieval::FlatIndex& index,
                                     std::span<const float> vectors, uint32_t dimension,
                                     std::span<const CorpusDocument> documents, uint32_t top_k) {
  std::string lines;
  for (size_t at = 0; at < vectors.size(); at += dimension) {
    RAG_ASSIGN_OR_RETURN(auto hits, index.search(vectors.subspan(at, dimension), top_k));
    hits.resize(std::min<size_t>(hits.size(), top_k));
    nlohmann::json found = nlohmann::json::array();
    for (const retrieval::VectorHit& hit : hits) {
      const CorpusDocument& document = documents[static_cast<size_t>(hit.id)];
      found.push_back({{"id", document.id}, {"tokens", document.tokens}});
    }
    lines += nlohmann::json{{"documents", found}}.dump() + "\n";
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
  RAG_ASSIGN_OR_RETURN(auto embedder, retrieval::Embedder::load(command.embedding_model));

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
  std::vector<std::string> texts;
  for (const CorpusDocument& document : documents) {
    texts.push_back(document.title.empty() ? document.text : document.title + "\n" + document.text);
  }

  RAG_ASSIGN_OR_RETURN(const auto vectors, embed(*embedder, texts, "documents embedded"));
  retrieval::FlatIndex index(embedder->dimension());
  std::vector<int64_t> ids(documents.size());
  std::iota(ids.begin(), ids.end(), 0);
  RAG_RETURN_IF_ERROR(index.add(ids, vectors));

  for (const QuestionSet& set : sets) {
    RAG_ASSIGN_OR_RETURN(const auto queries, embed(*embedder, set.texts, "questions embedded"));
    RAG_ASSIGN_OR_RETURN(const std::string lines,
                         trace_of(index, queries, embedder->dimension(), documents, command.top_k));
    RAG_RETURN_IF_ERROR(write_report(str_cat(command.out, "/", set.name, ".jsonl"), lines));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
