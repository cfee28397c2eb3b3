#include "services/retrieval/corpus.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/documents/document_writer.h"

namespace ragcache::retrieval {
namespace {

constexpr size_t kReconcileBatch = 1024;
// Changes after which an ingest under way saves the index: what a crash makes the next start redo.
constexpr uint64_t kUnsavedChangesMax = 20'000;
// At an ingest's end the index is saved when at least one in so many of its vectors changed.
constexpr uint64_t kSaveShare = 100;
// A document replaced while it is searched for is looked for again.
constexpr int kSearchRoundsMax = 4;

// The first corpus' file has the name that it had when there was only one.
std::string index_path(const std::string& folder, CorpusNumber number) {
  return number == 1 ? folder + "/vectors.index" : str_cat(folder, "/vectors-", number, ".index");
}

}  // namespace

ChunkOptions chunk_options(const CorpusSettings& settings, const ChunkOptions& defaults) {
  return {.max_tokens = settings.chunk_tokens.value_or(defaults.max_tokens),
          .overlap_tokens = settings.chunk_overlap_tokens.value_or(defaults.overlap_tokens)};
}

Corpus::Corpus(const Shared& shared, const CorpusRecord& record)
    : store_(*shared.store),
      builder_(*shared.builder),
      index_options_(shared.index),
      number_(record.number),
      name_(record.name),
      settings_(record.settings),
      cut_(chunk_options(record.settings, shared.chunk)),
      index_path_(index_path(shared.folder, record.number)),
      identity_{.store_id = shared.store->store_id(), .embedding_model = shared.embedding_model} {}

absl::StatusOr<std::shared_ptr<Corpus>> Corpus::open(const Shared& shared,
                                                     const CorpusRecord& record) {
  std::shared_ptr<Corpus> corpus(new Corpus(shared, record));
  RAG_RETURN_IF_ERROR(corpus->load_index());
  RAG_RETURN_IF_ERROR(corpus->load_metadata());
  RAG_RETURN_IF_ERROR(corpus->reconcile());
  RAG_RETURN_IF_ERROR(corpus->settle());
  return corpus;
}

absl::Status Corpus::load_index() {
  const VectorReader embeddings = [store = &store_](std::span<const int64_t> ids,
                                                    const auto& visit) {
    return store->read_embeddings(ids, visit);
  };
  auto loaded = GrowingIndex::load(index_path_, index_options_, identity_, embeddings);
  if (loaded.ok()) {
    index_ = *std::move(loaded);
    return absl::OkStatus();
  }
  switch (loaded.status().code()) {
    case absl::StatusCode::kNotFound:
      break;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      log::warn("index file not used: the index is rebuilt from the stored embeddings",
                {{"reason", std::string(loaded.status().message())}});
      break;
    default:
      return loaded.status();
  }
  index_ = GrowingIndex::create(index_options_, embeddings);
  return absl::OkStatus();
}

absl::Status Corpus::load_metadata() {
  std::string last_json;
  Metadata metadata;
  absl::Status parsed;
  RAG_RETURN_IF_ERROR(store_.read_metadata(number_, [&](VectorId vector, std::string_view json) {
    if (json != last_json) {
      last_json = json;
      auto read = parse_metadata(json);
      if (!read.ok()) parsed = read.status();
      metadata = read.ok() ? *std::move(read) : Metadata();
    }
    metadata_.add(std::span(&vector, 1), metadata);
  }));
  return parsed;
}

absl::Status Corpus::reconcile() {
  RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> stored, store_.current_vectors(number_));
  const std::vector<VectorId> indexed = index_->ids();
  std::vector<VectorId> missing, surplus;
  std::ranges::set_difference(stored, indexed, std::back_inserter(missing));
  std::ranges::set_difference(indexed, stored, std::back_inserter(surplus));
  if (missing.empty() && surplus.empty()) return absl::OkStatus();
  const std::lock_guard lock(publish_mutex_);
  RAG_RETURN_IF_ERROR(index_->remove(surplus).status());
  for (size_t begin = 0; begin < missing.size(); begin += kReconcileBatch) {
    const size_t size = std::min(kReconcileBatch, missing.size() - begin);
    std::vector<VectorId> ids;
    std::vector<float> vectors;
    RAG_RETURN_IF_ERROR(store_.read_embeddings(
        std::span(missing).subspan(begin, size), [&](VectorId id, std::span<const float> vector) {
          ids.push_back(id);
          vectors.insert(vectors.end(), vector.begin(), vector.end());
        }));
    RAG_RETURN_IF_ERROR(index_->add(ids, vectors));
  }
  unsaved_changes_ += missing.size() + surplus.size();
  log::info("index brought up to the document store", {{"corpus", name_},
                                                       {"added", missing.size()},
                                                       {"removed", surplus.size()},
                                                       {"vectors", index_->size()}});
  return absl::OkStatus();
}

CorpusRecord Corpus::record() const {
  return store_.find_corpus(number_).value_or(
      CorpusRecord{.number = number_, .name = name_, .settings = settings_});
}

absl::StatusOr<Corpus::Ingested> Corpus::upsert(std::span<const DocumentText> documents,
                                                std::stop_token stop) {
  absl::flat_hash_map<absl::string_view, size_t> last;
  for (size_t i = 0; i < documents.size(); ++i) last[documents[i].id] = i;
  RAG_ASSIGN_OR_RETURN(const std::vector<uint32_t> current,
                       store_.current_pieces(number_, cut_, documents));
  Ingested ingested{.documents = documents.size()};
  std::vector<DocumentBuilder::Order> orders;
  std::vector<Metadata> metadata;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (last[documents[i].id] != i) continue;
    ingested.pieces += current[i];
    if (current[i] > 0) continue;
    RAG_ASSIGN_OR_RETURN(metadata.emplace_back(), parse_metadata(documents[i].metadata));
    orders.push_back({.document = documents[i], .cut = cut_});
  }
  if (orders.empty()) return ingested;
  RAG_ASSIGN_OR_RETURN(const DocumentBuilder::Built built,
                       builder_.build(std::move(orders), std::move(stop)));
  RAG_RETURN_IF_ERROR(publish(built.documents, metadata));
  ingested.tokens = built.tokens;
  for (const BuiltDocument& document : built.documents) ingested.pieces += document.pieces.size();
  return ingested;
}

absl::Status Corpus::publish(std::span<const BuiltDocument> documents,
                             std::span<const Metadata> metadata) {
  const std::lock_guard lock(publish_mutex_);
  RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_.begin_write());
  std::vector<VectorId> added, replaced;
  std::vector<float> vectors;
  std::vector<DocumentWriter::Stored> stored;
  for (const BuiltDocument& document : documents) {
    RAG_ASSIGN_OR_RETURN(
        const DocumentWriter::Stored put,
        writer.put(number_, document.document, document.cut, document.pieces, document.vectors));
    added.insert(added.end(), put.vectors.begin(), put.vectors.end());
    replaced.insert(replaced.end(), put.replaced.begin(), put.replaced.end());
    vectors.insert(vectors.end(), document.vectors.begin(), document.vectors.end());
    stored.push_back(put);
  }
  for (size_t i = 0; i < stored.size(); ++i) metadata_.add(stored[i].vectors, metadata[i]);
  absl::Status status = index_->add(added, vectors);
  if (status.ok()) status = writer.commit();
  // First from the metadata: a search that the index gave neither version can tell by that.
  metadata_.remove(status.ok() ? replaced : added);
  RAG_RETURN_IF_ERROR(index_->remove(status.ok() ? replaced : added).status());
  RAG_RETURN_IF_ERROR(status);
  unsaved_changes_ += added.size() + replaced.size();
  return unsaved_changes_ >= kUnsavedChangesMax ? save_locked() : absl::OkStatus();
}

absl::StatusOr<uint64_t> Corpus::erase(std::span<const std::string> ids) {
  const std::lock_guard lock(publish_mutex_);
  RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store_.begin_write());
  std::vector<VectorId> erased;
  uint64_t documents = 0;
  for (const std::string& id : ids) {
    RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> vectors, writer.erase(number_, id));
    erased.insert(erased.end(), vectors.begin(), vectors.end());
    documents += !vectors.empty();
  }
  RAG_RETURN_IF_ERROR(writer.commit());
  metadata_.remove(erased);
  RAG_RETURN_IF_ERROR(index_->remove(erased).status());
  unsaved_changes_ += erased.size();
  return documents;
}

absl::Status Corpus::settle() {
  RAG_ASSIGN_OR_RETURN(const bool trained, index_->improve());
  const std::lock_guard lock(publish_mutex_);
  if (trained) unsaved_changes_ += index_->size();
  if (unsaved_changes_ * kSaveShare < index_->size()) return absl::OkStatus();
  return save_locked();
}

absl::Status Corpus::save() {
  const std::lock_guard lock(publish_mutex_);
  return save_locked();
}

absl::Status Corpus::save_locked() {
  if (unsaved_changes_ == 0 || discarded_) return absl::OkStatus();
  const TimePoint started = steady_now();
  RAG_RETURN_IF_ERROR(index_->save(index_path_, identity_));
  unsaved_changes_ = 0;
  log::info("index saved", {{"corpus", name_},
                            {"vectors", index_->size()},
                            {"seconds", to_seconds(steady_now() - started)}});
  return absl::OkStatus();
}

void Corpus::discard() {
  const std::lock_guard lock(publish_mutex_);
  discarded_ = true;
  std::error_code gone;
  std::filesystem::remove(index_path_, gone);
}

absl::StatusOr<std::vector<FoundDocument>> Corpus::search(std::span<const float> query, size_t k,
                                                          const Filter& filter) {
  std::vector<FoundDocument> found;
  size_t fetch = k;
  for (int round = 0; round < kSearchRoundsMax; ++round) {
    const uint64_t version = metadata_.version();
    std::shared_ptr<const IdSet> allowed;
    if (!filter.conditions.empty()) allowed = metadata_.select(filter);
    RAG_ASSIGN_OR_RETURN(const std::vector<VectorHit> hits,
                         index_->search(query, fetch, allowed.get()));
    std::vector<VectorId> ids;
    for (const VectorHit& hit : hits) ids.push_back(hit.id);
    RAG_ASSIGN_OR_RETURN(std::vector<std::optional<DocumentRecord>> records,
                         store_.find_by_vector(ids));
    found.clear();
    for (size_t i = 0; i < hits.size(); ++i) {
      if (records[i].has_value()) found.push_back({*std::move(records[i]), hits[i].score});
    }
    // Both vectors of a piece under replacement are in the index and one of them in the store; of
    // one replaced since the selection, neither may have been allowed.
    const size_t unseen = hits.size() - found.size();
    const bool selection_holds = allowed == nullptr || metadata_.version() == version;
    if (unseen == 0 && selection_holds) break;
    if (found.size() >= k && round > 0) break;
    fetch = k + unseen;
  }
  std::ranges::sort(found, [](const FoundDocument& a, const FoundDocument& b) {
    return a.score != b.score ? a.score > b.score : a.document.id < b.document.id;
  });
  if (found.size() > k) found.resize(k);
  return found;
}

}  // namespace ragcache::retrieval
