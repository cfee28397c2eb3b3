#include "loadgen/record/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <stop_token>
#include <utility>

#include "common/model/model_files.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/report_file.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/sample.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/index/flat_index.h"

namespace ragcache::loadgen {
namespace {

// Texts of one job of the embedder, between two lines of progress.
constexpr size_t kBatch = 64;

struct Question {
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
  std::vector<Question> questions;
  for (const std::string& argument : command.questions) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos || argument.find('/') < equals) {
      return absl::InvalidArgumentError(
          str_cat("--questions: is \"", argument, "\", must be NAME=PATH"));
    }
    Question question{argument.substr(0, equals), {}};
    RAG_ASSIGN_OR_RETURN(question.texts,
                         read_questions(argument.substr(equals + 1), command.exclude));
    sample(question.texts, command.max_questions, command.seed);
    questions.push_back(std::move(question));
  }
  std::vector<CorpusDocument> documents;
  for (const std::string& path : command.corpora) {
    RAG_ASSIGN_OR_RETURN(std::vector<CorpusDocument> more, read_corpus(path));
    std::move(more.begin(), more.end(), std::back_inserter(documents));
  }
  RAG_ASSIGN_OR_RETURN(const auto model, ModelFiles::open(command.model));
  RAG_ASSIGN_OR_RETURN(const auto format, model->prompt_format("auto"));
  RAG_ASSIGN_OR_RETURN(auto embedder, retrieval::Embedder::load(command.embedding_model));

  Progress progress("passages tokenised", documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    const auto ids = format->tokenizer().encode(documents[i].text);
    documents[i].tokens = static_cast<uint32_t>(ids.size());
    progress.show(i + 1);
  }
  documents = join_neighbours(std::move(documents), command.doc_tokens);
  sample(documents, command.corpus_documents, command.seed);
  std::vector<std::string> texts;
  for (CorpusDocument& document : documents) {
    // What the cache would hold: the document's segment of a prompt.
    document.tokens = static_cast<uint32_t>(format->document(document.title, document.text).size());
    texts.push_back(document.title.empty() ? document.text : document.title + "\n" + document.text);
  }

  RAG_ASSIGN_OR_RETURN(const auto vectors, embed(*embedder, texts, "documents embedded"));
  retrieval::FlatIndex index(embedder->dimension());
  std::vector<int64_t> ids(documents.size());
  std::iota(ids.begin(), ids.end(), 0);
  RAG_RETURN_IF_ERROR(index.add(ids, vectors));

  for (const Question& question : questions) {
    RAG_ASSIGN_OR_RETURN(const auto queries,
                         embed(*embedder, question.texts, "questions embedded"));
    RAG_ASSIGN_OR_RETURN(const std::string lines,
                         trace_of(index, queries, embedder->dimension(), documents, command.top_k));
    RAG_RETURN_IF_ERROR(write_report(str_cat(command.out, "/", question.name, ".jsonl"), lines));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
