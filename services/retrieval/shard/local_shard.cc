#include "services/retrieval/shard/local_shard.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <filesystem>
#include <future>
#include <shared_mutex>
#include <system_error>
#include <utility>

#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/index/index_file.h"
#include "services/retrieval/index/make_index.h"
#include "services/retrieval/shard/message_file.h"
#include "services/retrieval/shard/wire.h"

namespace ragcache::retrieval {
namespace {

// An index is saved after changes of a quarter of its vectors, within these bounds: a crash makes
// the router replay no more, and all savings together write a small multiple of what was added.
constexpr uint64_t kUnsavedChangesMin = 1'000;
constexpr uint64_t kUnsavedChangesMax = 20'000;
constexpr uint64_t kUnsavedShare = 4;

constexpr const char* kSpecSuffix = ".spec";
constexpr const char* kIndexSuffix = ".index";

absl::Status no_index(const IndexKey& key) {
  return absl::NotFoundError(
      str_cat("there is no index of corpus ", key.corpus, ", generation ", key.generation));
}

// Keeps a file that cannot be used out of the way, for whoever wants to know why.
void set_aside(const std::string& path, const absl::Status& reason) {
  std::error_code error;
  std::filesystem::rename(path, path + ".bad", error);
  log::warn("file set aside; the index begins anew",
            {{"file", path + ".bad"}, {"reason", std::string(reason.message())}});
}

IndexIdentity identity_of(const Digest& store_id, const IndexKey& key, const IndexSpec& spec) {
  return {.store_id = store_id,
          .embedding_model = spec.embedding_model,
          .corpus = key.corpus,
          .generation = key.generation};
}

// "12-340" of "12-340.spec".
std::optional<IndexKey> key_of(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const char* const end = stem.data() + stem.size();
  IndexKey key;
  const auto corpus = std::from_chars(stem.data(), end, key.corpus);
  if (corpus.ec != std::errc() || corpus.ptr == end || *corpus.ptr != '-') return std::nullopt;
  const auto generation = std::from_chars(corpus.ptr + 1, end, key.generation);
  if (generation.ec != std::errc() || generation.ptr != end) return std::nullopt;
  return key;
}

}  // namespace

// A search sees the index before a batch or after it, never between.
struct LocalShard::Index {
  Index(std::shared_ptr<const IndexSpec> s, std::shared_ptr<VectorIndex> i, IndexState st)
      : spec(std::move(s)), index(std::move(i)), state_(st) {}

  const std::shared_ptr<const IndexSpec> spec;
  const std::shared_ptr<VectorIndex> index;

  // Everybody passes the gate, and the writer waits in it: searches that overlap cannot starve it.
  std::mutex gate;
  std::shared_mutex mutex;

  uint64_t unsaved = 0;  // the write thread's

  IndexState current() const {
    const std::lock_guard lock(state_mutex_);
    return state_;
  }
  void set(const IndexState& state) {
    const std::lock_guard lock(state_mutex_);
    state_ = state;
  }

 private:
  mutable std::mutex state_mutex_;
  IndexState state_;  // guarded by state_mutex_; set by the write thread, which holds mutex as well
};

LocalShard::LocalShard(const Options& options, FolderLock lock,
                       boost::asio::thread_pool& search_pool)
    : options_(options), lock_(std::move(lock)), search_pool_(search_pool) {}

LocalShard::~LocalShard() { write_pool_.join(); }

absl::StatusOr<std::unique_ptr<LocalShard>> LocalShard::open(
    const Options& options, boost::asio::thread_pool& search_pool) {
  RAG_RETURN_IF_ERROR(make_writable_folder(options.folder));
  RAG_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::acquire(options.folder));
  std::unique_ptr<LocalShard> shard(new LocalShard(options, std::move(lock), search_pool));
  RAG_RETURN_IF_ERROR(shard->load());
  return shard;
}

absl::Status LocalShard::load() {
  std::error_code error;
  std::vector<IndexKey> keys;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    if (entry.path().extension() != kSpecSuffix) continue;
    if (const std::optional<IndexKey> key = key_of(entry.path())) keys.push_back(*key);
  }
  if (error) {
    return absl::UnavailableError(
        str_cat("cannot list folder ", options_.folder, ": ", error.message()));
  }
  std::ranges::sort(keys);
  for (const IndexKey& key : keys) RAG_RETURN_IF_ERROR(load_index(key));
  return absl::OkStatus();
}

absl::Status LocalShard::load_index(const IndexKey& key) {
  const TimePoint started = steady_now();
  const std::string spec_path = path_of(key, kSpecSuffix);
  v1::IndexDescription description;
  absl::Status status = read_message_file(spec_path, description);
  absl::StatusOr<ShardBinding> binding = to_binding(description.binding());
  absl::StatusOr<IndexSpec> read = to_spec(description.spec());
  if (status.ok()) status = binding.status();
  if (status.ok()) status = read.status();
  if (status.ok() && to_key(description.key()) != key) {
    status = absl::DataLossError("it is of another index than its name says");
  }
  if (!status.ok()) {
    set_aside(spec_path, status);
    return absl::OkStatus();
  }
  const bool is_ours = binding->shard == options_.shard && binding->shards == options_.shards;
  const bool is_first = !store_id_.has_value() || *store_id_ == binding->store_id;
  if (!is_ours || !is_first) {
    return absl::FailedPreconditionError(
        str_cat("folder ", options_.folder, " is that of shard ", binding->shard, " of ",
                binding->shards, ", not of shard ", options_.shard, " of ", options_.shards,
                ": give this one the state_dir that it had, or an empty one"));
  }
  store_id_ = binding->store_id;
  auto spec = std::make_shared<const IndexSpec>(*std::move(read));

  const std::string index_path = path_of(key, kIndexSuffix);
  const IndexIdentity identity = identity_of(binding->store_id, key, *spec);
  IndexState state{.key = key};
  absl::StatusOr<LoadedIndex> loaded = load_index_file(index_path, spec->options, identity);
  if (!loaded.ok()) {
    if (!absl::IsNotFound(loaded.status())) set_aside(index_path, loaded.status());
    loaded.emplace();
    if (auto made = make_index(spec->options, spec->trained); made.ok()) {
      loaded->index = *std::move(made);
    } else {
      set_aside(spec_path, made.status());
      return absl::OkStatus();
    }
  } else {
    state.applied = loaded->position.applied;
    state.floor = loaded->position.floor;
    state.origin = loaded->position.origin;
  }
  state.vectors = loaded->index->size();
  state.wasteful = loaded->index->needs_compaction();
  indexes_.emplace(key, std::make_shared<Index>(std::move(spec), std::move(loaded->index), state));
  log::info("index loaded", {{"shard", options_.shard},
                             {"corpus", key.corpus},
                             {"vectors", state.vectors},
                             {"sequence", state.applied},
                             {"seconds", to_seconds(steady_now() - started)}});
  return absl::OkStatus();
}

std::string LocalShard::path_of(const IndexKey& key, const char* suffix) const {
  return str_cat(options_.folder, "/", key.corpus, "-", key.generation, suffix);
}

std::shared_ptr<LocalShard::Index> LocalShard::find(const IndexKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = indexes_.find(key);
  return found == indexes_.end() ? nullptr : found->second;
}

absl::Status LocalShard::check_binding(const ShardBinding& binding) {
  if (binding.shard != options_.shard || binding.shards != options_.shards) {
    return absl::FailedPreconditionError(
        str_cat("this is shard ", options_.shard, " of ", options_.shards,
                " (shard_index, shard_count), and the router has it as shard ", binding.shard,
                " of ", binding.shards, " (shards)"));
  }
  std::vector<IndexKey> foreign;
  std::unique_lock lock(mutex_);
  if (store_id_.has_value() && *store_id_ != binding.store_id && !indexes_.empty()) {
    const auto name = [](const Digest& id) { return to_hex(std::span(id).first(4)); };
    if (!options_.replace_foreign) {
      return absl::FailedPreconditionError(
          str_cat("the vectors of folder ", options_.folder, " are of document store ",
                  name(*store_id_), ", and the router's is ", name(binding.store_id),
                  ": wire the shard to its own router, or give it an empty state_dir"));
    }
    log::warn("the indexes are of another document store and begin anew",
              {{"folder", options_.folder}});
    for (const auto& [key, index] : indexes_) foreign.push_back(key);
  }
  store_id_ = binding.store_id;
  lock.unlock();
  for (const IndexKey& key : foreign) erase(key);
  return absl::OkStatus();
}

void LocalShard::bind(const ShardBinding& binding, Duration, Done<std::vector<IndexState>> done) {
  if (absl::Status status = check_binding(binding); !status.ok()) return done(status);
  bound_ = true;
  std::vector<std::shared_ptr<Index>> indexes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, index] : indexes_) indexes.push_back(index);
  }
  std::vector<IndexState> states;
  for (const std::shared_ptr<Index>& index : indexes) states.push_back(index->current());
  done(std::move(states));
}

void LocalShard::create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration,
                        Done<IndexState> done) {
  boost::asio::post(write_pool_,
                    [this, key, spec = std::move(spec), done = std::move(done)]() mutable {
                      done(make(key, std::move(spec)));
                    });
}

absl::StatusOr<IndexState> LocalShard::make(const IndexKey& key,
                                            std::shared_ptr<const IndexSpec> spec) {
  v1::IndexDescription description;
  {
    const std::lock_guard lock(mutex_);
    if (!store_id_.has_value()) {
      return absl::FailedPreconditionError("no router has bound the shard yet");
    }
    to_message({.store_id = *store_id_, .shard = options_.shard, .shards = options_.shards},
               *description.mutable_binding());
  }
  to_message(key, *description.mutable_key());
  to_message(*spec, *description.mutable_spec());
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<VectorIndex> made, make_index(spec->options, spec->trained));
  erase(key);
  RAG_RETURN_IF_ERROR(write_message_file(path_of(key, kSpecSuffix), description));
  const IndexState state{.key = key};
  const std::lock_guard lock(mutex_);
  indexes_[key] = std::make_shared<Index>(std::move(spec), std::move(made), state);
  return state;
}

void LocalShard::drop(const IndexKey& key, Duration, Done<IndexState> done) {
  boost::asio::post(write_pool_, [this, key, done = std::move(done)]() mutable {
    erase(key);
    done(IndexState{.key = key});
  });
}

void LocalShard::erase(const IndexKey& key) {
  {
    const std::lock_guard lock(mutex_);
    indexes_.erase(key);
  }
  std::error_code error;
  std::filesystem::remove(path_of(key, kIndexSuffix), error);
  std::filesystem::remove(path_of(key, kSpecSuffix), error);
}

void LocalShard::apply(ChangeBatch batch, Duration, Done<IndexState> done) {
  boost::asio::post(write_pool_, [this, batch = std::move(batch),
                                  done = std::move(done)]() mutable { done(change(batch)); });
}

absl::StatusOr<IndexState> LocalShard::change(const ChangeBatch& batch) {
  const std::shared_ptr<Index> index = find(batch.key);
  if (index == nullptr) return no_index(batch.key);
  const size_t dimension = index->spec->options.dimension;
  if (batch.vectors.size() != batch.added.size() * dimension) {
    return absl::InvalidArgumentError(str_cat("vectors: ", batch.vectors.size(), " numbers for ",
                                              batch.added.size(), " vectors, the index has ",
                                              dimension, " for each"));
  }
  IndexState state = index->current();
  RAG_RETURN_IF_ERROR(check_follows(state, batch));
  {
    const std::lock_guard waiting(index->gate);
    const std::lock_guard lock(index->mutex);
    absl::Status status = index->index->add(batch.added, batch.vectors);
    if (status.ok()) status = index->index->remove(batch.removed).status();
    if (!status.ok()) {
      // Half a batch is no state of the corpus.
      log::error("the index is dropped",
                 {{"corpus", batch.key.corpus}, {"reason", std::string(status.message())}});
      erase(batch.key);
      return status;
    }
    advance(state, batch);
    state.vectors = index->index->size();
    state.wasteful = index->index->needs_compaction();
    index->set(state);
  }
  index->unsaved += batch.added.size() + batch.removed.size();
  const uint64_t bound =
      std::clamp(state.vectors / kUnsavedShare, kUnsavedChangesMin, kUnsavedChangesMax);
  if (index->unsaved >= bound) {
    // The router need not wait for it; later changes do.
    boost::asio::post(write_pool_, [this, index] { save(*index); });
  }
  return state;
}

void LocalShard::search(std::shared_ptr<const ShardQuery> query, Duration, std::stop_token stop,
                        Done<ShardHits> done) {
  boost::asio::post(search_pool_, [this, query = std::move(query), stop = std::move(stop),
                                   done = std::move(done)]() mutable {
    const auto answer = [&]() -> absl::StatusOr<ShardHits> {
      if (stop.stop_requested()) return absl::CancelledError("the caller has gone");
      const std::shared_ptr<Index> index = find(query->key);
      if (index == nullptr) return no_index(query->key);
      const size_t dimension = index->spec->options.dimension;
      if (query->query.size() != dimension) {
        return absl::InvalidArgumentError(
            str_cat("query: ", query->query.size(), " numbers, the index has ", dimension));
      }
      std::unique_lock waiting(index->gate);
      const std::shared_lock lock(index->mutex);
      waiting.unlock();
      const IndexState state = index->current();
      RAG_RETURN_IF_ERROR(check_has(state, *query));
      ShardHits hits{.sequence = state.applied};
      RAG_ASSIGN_OR_RETURN(hits.candidates,
                           index->index->candidates(query->query, query->k, query->allowed.get()));
      return hits;
    };
    done(answer());
  });
}

void LocalShard::save() {
  std::promise<void> saved;
  boost::asio::post(write_pool_, [this, &saved] {
    std::vector<std::shared_ptr<Index>> indexes;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, index] : indexes_) indexes.push_back(index);
    }
    for (const std::shared_ptr<Index>& index : indexes) save(*index);
    saved.set_value();
  });
  saved.get_future().wait();
}

void LocalShard::save(Index& index) {
  const IndexState state = index.current();
  if (index.unsaved == 0 || find(state.key).get() != &index) return;
  const TimePoint started = steady_now();
  Digest store_id;
  {
    const std::lock_guard lock(mutex_);
    store_id = *store_id_;
  }
  const IndexIdentity identity = identity_of(store_id, state.key, *index.spec);
  const absl::Status saved =
      save_index_file(path_of(state.key, kIndexSuffix), *index.index, index.spec->options, identity,
                      {.applied = state.applied, .floor = state.floor, .origin = state.origin});
  if (!saved.ok()) {
    // What the file lacks, the router replays.
    log::error("index not saved", {{"reason", std::string(saved.message())}});
    return;
  }
  index.unsaved = 0;
  log::info("index saved", {{"shard", options_.shard},
                            {"corpus", state.key.corpus},
                            {"vectors", state.vectors},
                            {"seconds", to_seconds(steady_now() - started)}});
}

uint64_t LocalShard::vectors() const {
  std::vector<std::shared_ptr<Index>> indexes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, index] : indexes_) indexes.push_back(index);
  }
  uint64_t total = 0;
  for (const std::shared_ptr<Index>& index : indexes) total += index->current().vectors;
  return total;
}

}  // namespace ragcache::retrieval
