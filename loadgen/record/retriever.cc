#include "loadgen/record/retriever.h"

#include <algorithm>
#include <numeric>
#include <stop_token>
#include <utility>

#include "common/status.h"
#include "loadgen/report/progress.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/index/flat_index.h"

namespace ragcache::loadgen {
namespace {

// Texts of one job of the embedder, between two lines of progress.
constexpr size_t kBatch = 64;

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

class ExactRetriever : public Retriever {
 public:
  explicit ExactRetriever(std::unique_ptr<retrieval::Embedder> embedder)
      : embedder_(std::move(embedder)), index_(embedder_->dimension()) {}

  absl::Status add(std::span<const CorpusDocument> documents) {
    std::vector<std::string> texts;
    for (const CorpusDocument& document : documents) {
      texts.push_back(document.title.empty() ? document.text
                                             : document.title + "\n" + document.text);
    }
    RAG_ASSIGN_OR_RETURN(const auto vectors, embed(*embedder_, texts, "documents embedded"));
    std::vector<int64_t> ids(documents.size());
    std::iota(ids.begin(), ids.end(), 0);
    return index_.add(ids, vectors);
  }

  absl::StatusOr<std::vector<std::vector<uint32_t>>> find(std::span<const std::string> questions,
                                                          uint32_t top_k) override {
    RAG_ASSIGN_OR_RETURN(const auto vectors, embed(*embedder_, questions, "questions embedded"));
    const size_t dimension = embedder_->dimension();
    std::vector<std::vector<uint32_t>> found;
    for (size_t at = 0; at < vectors.size(); at += dimension) {
      RAG_ASSIGN_OR_RETURN(auto hits,
                           index_.search(std::span(vectors).subspan(at, dimension), top_k));
      hits.resize(std::min<size_t>(hits.size(), top_k));
      std::vector<uint32_t>& places = found.emplace_back();
      for (const retrieval::VectorHit& hit : hits) {
        places.push_back(static_cast<uint32_t>(hit.id));
      }
    }
    return found;
  }

 private:
  const std::unique_ptr<retrieval::Embedder> embedder_;
  retrieval::FlatIndex index_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Retriever>> Retriever::create(
    const std::string& embedding_model, std::span<const CorpusDocument> documents) {
  RAG_ASSIGN_OR_RETURN(auto embedder, retrieval::Embedder::load(embedding_model));
  auto retriever = std::make_unique<ExactRetriever>(std::move(embedder));
  RAG_RETURN_IF_ERROR(retriever->add(documents));
  return retriever;
}

}  // namespace ragcache::loadgen
