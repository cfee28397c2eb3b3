#include "services/retrieval/corpora.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/documents/document_writer.h"

namespace ragcache::retrieval {
namespace {

constexpr uint32_t kRefreshBatch = 32;
constexpr double kProgressSeconds = 5;

constexpr uint32_t kChunkTokensMin = 64;
constexpr uint32_t kChunkTokensMax = 65'536;

// Before there were shards, indexes lay beside the documents: vectors.index, vectors-N.index.
void remove_old_indexes(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path& path = entry.path();
    const bool is_old =
        path.extension() == ".index" && path.filename().string().starts_with("vectors");
    if (is_old && std::filesystem::remove(path, error)) {
      log::info("index file of an earlier version removed", {{"file", path.string()}});
    }
  }
}

}  // namespace

absl::Status check_corpus_name(std::string_view name) {
  const bool is_good = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
  if (is_good && !name.empty() && name.size() <= Corpora::kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      str_cat("corpus.name: must be 1 to ", Corpora::kNameBytesMax, " of a-z, 0-9, '-', '_', '.'"));
}

absl::Status check_chunk_settings(const CorpusSettings& settings) {
  const uint32_t tokens = settings.chunk_tokens.value_or(0);
  if (tokens != 0 && (tokens < kChunkTokensMin || tokens > kChunkTokensMax)) {
    return absl::InvalidArgumentError(str_cat("chunk_tokens: ", tokens, ", must be 0 or ",
                                              kChunkTokensMin, "..", kChunkTokensMax));
  }
  const uint32_t overlap = settings.chunk_overlap_tokens.value_or(0);
  const uint32_t overlap_max = (tokens == 0 ? kChunkTokensMax : tokens) / 2;
  if (overlap > overlap_max) {
    return absl::InvalidArgumentError(str_cat("chunk_overlap_tokens: ", overlap, ", at most ",
                                              overlap_max,
                                              tokens == 0 ? "" : ", half of chunk_tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Corpora>> Corpora::open(
    const std::string& folder, const Options& options, std::shared_ptr<const PromptFormat> format,
    Embedder& embedder, std::vector<std::vector<ReplicaEndpoint>> shards,
    boost::asio::thread_pool& search_pool, prometheus::Registry& registry) {
  RAG_CHECK(options.index.dimension == embedder.dimension());
  const DocumentSources sources = {.embedding_model = embedder.fingerprint(),
                                   .tokenizer = format->tokenizer().fingerprint(),
                                   .dimension = embedder.dimension()};
  std::unique_ptr<Corpora> corpora(new Corpora());
  corpora->tokenizer_fingerprint_ = sources.tokenizer;
  Corpus::Shared& shared = corpora->shared_;
  RAG_ASSIGN_OR_RETURN(shared.store, DocumentStore::open(folder, sources, options.readers));
  remove_old_indexes(folder);
  shared.builder = std::make_unique<DocumentBuilder>(std::move(format), embedder);
  shared.search_pool = &search_pool;
  shared.chunk = options.chunk;
  RAG_RETURN_IF_ERROR(corpora->refresh());
  const Router::Options routing = {.folder = folder + "/indexes",
                                   .index = options.index,
                                   .embedding_model = embedder.fingerprint(),
                                   .shard_timeout = options.shard_timeout};
  RAG_ASSIGN_OR_RETURN(shared.router, Router::create(routing, std::move(shards), *shared.store,
                                                     search_pool, registry));
  for (const CorpusRecord& record : shared.store->corpora()) {
    RAG_ASSIGN_OR_RETURN(corpora->corpora_[record.name], Corpus::open(shared, record));
  }
  shared.router->start();
  return corpora;
}

// Before the shards follow.
absl::Status Corpora::refresh() {
  DocumentStore& store = *shared_.store;
  RAG_ASSIGN_OR_RETURN(const uint64_t total, store.stale_count());
  if (total == 0) return absl::OkStatus();
  log::info("documents were made with another tokenizer or embedding model: making them anew",
            {{"documents", total}});
  TimePoint last_report = steady_now();
  uint64_t done = 0;
  while (true) {
    RAG_ASSIGN_OR_RETURN(std::vector<DocumentStore::StaleDocument> batch,
                         store.stale(kRefreshBatch));
    if (batch.empty()) break;
    std::vector<DocumentBuilder::Order> orders;
    for (DocumentStore::StaleDocument& stale : batch) {
      const CorpusSettings settings = store.find_corpus(stale.corpus)->settings;
      DocumentBuilder::Order& order = orders.emplace_back();
      order.document = std::move(stale.document);
      order.cut = chunk_options(settings, shared_.chunk);
      for (auto& piece : stale.pieces) {
        order.known.push_back({std::move(piece.text), std::move(piece.embedding)});
      }
    }
    RAG_ASSIGN_OR_RETURN(const DocumentBuilder::Built built,
                         shared_.builder->build(std::move(orders), {}));
    RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store.begin_write());
    for (size_t i = 0; i < batch.size(); ++i) {
      const BuiltDocument& made = built.documents[i];
      RAG_RETURN_IF_ERROR(
          writer.put(batch[i].corpus, made.document, made.cut, made.pieces, made.vectors).status());
    }
    RAG_RETURN_IF_ERROR(writer.commit());
    done += batch.size();
    if (to_seconds(steady_now() - last_report) > kProgressSeconds) {
      last_report = steady_now();
      log::info("making documents anew", {{"done", done}, {"documents", total}});
    }
  }
  log::info("documents made anew", {{"documents", done}});
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Corpus>> Corpora::find(std::string_view name) const {
  const std::string_view wanted = name.empty() ? kDefaultCorpus : name;
  const std::lock_guard lock(mutex_);
  const auto found = corpora_.find(wanted);
  if (found == corpora_.end()) {
    return absl::NotFoundError(str_cat("corpus: there is no corpus '", wanted, "'"));
  }
  return found->second;
}

std::vector<std::shared_ptr<Corpus>> Corpora::list() const {
  std::vector<std::shared_ptr<Corpus>> corpora;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, corpus] : corpora_) corpora.push_back(corpus);
  return corpora;
}

absl::StatusOr<std::shared_ptr<Corpus>> Corpora::create(const std::string& name,
                                                        const CorpusSettings& settings) {
  RAG_RETURN_IF_ERROR(check_corpus_name(name));
  RAG_RETURN_IF_ERROR(check_chunk_settings(settings));
  const std::lock_guard change_lock(change_mutex_);
  if (auto known = find(name); known.ok()) {
    if ((*known)->settings() == settings) return known;
    return absl::AlreadyExistsError(
        str_cat("corpus: there is a corpus '", name, "' with other settings"));
  }
  if (list().size() >= kCorporaMax) {
    return absl::ResourceExhaustedError(
        str_cat("corpus: there are ", kCorporaMax, ", which is the most"));
  }
  RAG_ASSIGN_OR_RETURN(const CorpusRecord record, shared_.store->create_corpus(name, settings));
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<Corpus> made, Corpus::open(shared_, record));
  const std::lock_guard lock(mutex_);
  return corpora_[name] = std::move(made);
}

absl::StatusOr<uint64_t> Corpora::remove(std::string_view name) {
  const std::lock_guard change_lock(change_mutex_);
  RAG_ASSIGN_OR_RETURN(const std::shared_ptr<Corpus> corpus, find(name));
  const uint64_t documents = corpus->record().documents;
  RAG_RETURN_IF_ERROR(shared_.store->delete_corpus(corpus->number()));
  corpus->discard();
  std::shared_ptr<Corpus> successor;
  if (const auto record = shared_.store->find_corpus(corpus->name())) {
    RAG_ASSIGN_OR_RETURN(successor, Corpus::open(shared_, *record));
  }
  const std::lock_guard lock(mutex_);
  if (successor != nullptr) {
    corpora_[corpus->name()] = std::move(successor);
  } else {
    corpora_.erase(corpus->name());
  }
  return documents;
}

}  // namespace ragcache::retrieval
