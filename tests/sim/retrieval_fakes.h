#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/actor/sim_runtime.h"
#include "common/strings.h"
#include "services/retrieval/router/search_actor.h"

// What surrounds a router in the simulation: a document store, and shards behind a bad network.
namespace ragcache::retrieval::sim {

inline constexpr int kDocuments = 14;
inline constexpr size_t kDimension = 3;
inline constexpr uint64_t kRemovalsKept = 12;
inline constexpr size_t kBatchChanges = 5;

using Vector = std::vector<float>;

inline float score_of(const Vector& a, const Vector& b) {
  float sum = 0;
  for (size_t i = 0; i < kDimension; ++i) sum += a[i] * b[i];
  return sum;
}

// The filter of those searches that have one.
inline bool is_allowed(const Vector& values) { return values[0] >= 2; }

// Runs what it is sent: the fakes' way to do something later.
class Later {
 public:
  struct Run {
    absl::AnyInvocable<void()> task;
  };
  void handle(Run run, ActorContext&) { run.task(); }
};

inline std::string name_of(int document) { return str_cat("d", document); }

// The store of one run with all that was ever committed, so that searches can be judged.
class FakeStore : public StoreView {
 public:
  struct Version {
    uint64_t sequence = 0;  // since when
    int64_t vector = 0;     // 0: erased
    Vector values;
  };

  FakeStore(SimRuntime& runtime, uint32_t shards)
      : runtime_(runtime), shards_(shards), later_(runtime.spawn<Later>()) {}

  uint32_t shard_of(int document) const { return static_cast<uint32_t>(document) % shards_; }

  // One commit; an empty vector erases. Returns its sequence.
  uint64_t commit(int64_t corpus, const std::map<int, std::optional<Vector>>& changes) {
    Corpus& of = corpora_[corpus];
    for (const auto& [document, values] : changes) {
      const Version before = current(corpus, document);
      if (before.vector != 0) {
        std::erase_if(of.log, [&](const Change& change) { return change.vector == before.vector; });
        of.log.push_back({++of.sequence, before.vector, document, true, {}});
      } else if (!values.has_value()) {
        continue;
      }
      Version next;
      if (values.has_value()) {
        next.vector = ++last_vector_;
        next.values = *values;
        of.metadata[next.vector] = *values;
        of.log.push_back({++of.sequence, next.vector, document, false, *values});
      }
      next.sequence = of.sequence;
      of.history[document].push_back(next);
    }
    // Versions of one commit are seen together.
    for (const auto& [document, values] : changes) {
      if (!of.history[document].empty() && of.history[document].back().sequence > of.committed) {
        of.history[document].back().sequence = of.sequence;
      }
    }
    of.committed = of.sequence;
    // The writer tells the metadata of removals a little later.
    std::vector<int64_t> gone;
    for (const Change& change : of.log) {
      if (change.removed) gone.push_back(change.vector);
    }
    delay([&of, gone] {
      for (const int64_t vector : gone) of.metadata.erase(vector);
    });
    while (std::ranges::count(of.log, true, &Change::removed) >
           static_cast<ptrdiff_t>(kRemovalsKept)) {
      const auto oldest = std::ranges::find(of.log, true, &Change::removed);
      of.trimmed = oldest->sequence;
      of.log.erase(oldest);
    }
    return of.sequence;
  }

  uint64_t sequence(int64_t corpus) const {
    const auto found = corpora_.find(corpus);
    return found == corpora_.end() ? 0 : found->second.sequence;
  }

  Version current(int64_t corpus, int document) { return at(corpus, document, ~uint64_t{0}); }

  // The document as it was at `sequence`.
  Version at(int64_t corpus, int document, uint64_t sequence) {
    Version last;
    for (const Version& version : corpora_[corpus].history[document]) {
      if (version.sequence <= sequence) last = version;
    }
    return last;
  }

  // As it was at `from`, and all it became since.
  std::vector<Version> since(int64_t corpus, int document, uint64_t from) {
    std::vector<Version> versions = {at(corpus, document, from)};
    for (const Version& version : corpora_[corpus].history[document]) {
      if (version.sequence > from) versions.push_back(version);
    }
    return versions;
  }

  void read_changes(const IndexKey& key, const LogPosition& position, const LogPart& part,
                    Done<ChangeBatch> done) override {
    delay([this, key, position, part, done = std::move(done)]() mutable {
      const Corpus& of = corpora_[key.corpus];
      const uint64_t after = position.sequence;
      if (after > 0 && std::max(after, position.origin) < of.trimmed) {
        return done(absl::OutOfRangeError("the log has forgotten that"));
      }
      ChangeBatch batch{.key = key, .after = after, .upto = of.sequence, .end = of.sequence};
      size_t changes = 0;
      for (const Change& change : of.log) {
        if (change.sequence <= after) continue;
        if (shard_of(change.document) == part.shard && change.removed) {
          batch.removed.push_back(change.vector);
        } else if (shard_of(change.document) == part.shard) {
          batch.added.push_back(change.vector);
          batch.vectors.insert(batch.vectors.end(), change.values.begin(), change.values.end());
        }
        if (++changes < kBatchChanges) continue;
        batch.upto = change.sequence;
        break;
      }
      done(std::move(batch));
    });
  }

  void select(int64_t corpus, Done<Selection> done) {
    delay([this, corpus, done = std::move(done)]() mutable {
      Selection selection{.from = sequence(corpus), .upto = sequence(corpus)};
      auto allowed = std::make_shared<IdSet>();
      for (const auto& [vector, values] : corpora_[corpus].metadata) {
        if (is_allowed(values)) allowed->insert(vector);
      }
      selection.allowed = std::move(allowed);
      done(std::move(selection));
    });
  }

  void find_documents(int64_t corpus, std::vector<int64_t> vectors, Done<Documents> done) override {
    delay([this, corpus, vectors = std::move(vectors), done = std::move(done)]() mutable {
      Documents documents;
      for (const int64_t vector : vectors) {
        std::optional<DocumentRecord>& record = documents.records.emplace_back();
        for (int document = 0; document < kDocuments; ++document) {
          if (current(corpus, document).vector != vector) continue;
          record.emplace();
          record->id = name_of(document);
          record->text = std::to_string(vector);
        }
      }
      documents.sequence = sequence(corpus);
      done(std::move(documents));
    });
  }

 private:
  struct Change {
    uint64_t sequence = 0;
    int64_t vector = 0;
    int document = 0;
    bool removed = false;
    Vector values;
  };
  struct Corpus {
    uint64_t sequence = 0;
    uint64_t committed = 0;
    uint64_t trimmed = 0;
    std::vector<Change> log;
    std::map<int, std::vector<Version>> history;
    std::map<int64_t, Vector> metadata;
  };

  template <typename Task>
  void delay(Task task) {
    later_.send_after(std::chrono::microseconds(runtime_.random()() % 3000),
                      Later::Run{std::move(task)});
  }

  SimRuntime& runtime_;
  const uint32_t shards_;
  const ActorRef<Later> later_;
  std::map<int64_t, Corpus> corpora_;
  int64_t last_vector_ = 0;
};

// A shard behind a bad network: calls and answers take any time, overtake one another, or are lost;
// the caller then hears DEADLINE_EXCEEDED.
class FakeShard : public Shard {
 public:
  FakeShard(SimRuntime& runtime, uint32_t shard)
      : runtime_(runtime), shard_(shard), later_(runtime.spawn<Later>()) {}

  void crash() {
    alive_ = false;
    ++incarnation_;
  }
  void restart() {
    if (alive_) return;
    alive_ = true;
    indexes_ = saved_;
  }
  bool alive() const { return alive_; }
  void set_slow(bool slow) { slow_ = slow; }
  void set_reliable() { reliable_ = true; }

  // What is searched under the key; empty if there is no such index.
  std::map<int64_t, Vector> vectors(const IndexKey& key) { return indexes_[key].vectors; }

  void bind(const ShardBinding& binding, Duration timeout,
            Done<std::vector<IndexState>> done) override {
    EXPECT_EQ(binding.shard, shard_);
    call<std::vector<IndexState>>(timeout, std::move(done),
                                  [this]() -> absl::StatusOr<std::vector<IndexState>> {
                                    std::vector<IndexState> states;
                                    for (const auto& [key, index] : indexes_)
                                      states.push_back(index.state);
                                    return states;
                                  });
  }

  void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
              Done<IndexState> done) override {
    EXPECT_NE(spec, nullptr);
    call<IndexState>(timeout, std::move(done), [this, key]() -> absl::StatusOr<IndexState> {
      saved_.erase(key);
      return (indexes_[key] = Index{.state = {.key = key}}).state;
    });
  }

  void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) override {
    call<IndexState>(timeout, std::move(done), [this, key]() -> absl::StatusOr<IndexState> {
      indexes_.erase(key);
      saved_.erase(key);
      return IndexState{.key = key};
    });
  }

  void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) override {
    call<IndexState>(
        timeout, std::move(done), [this, batch = std::move(batch)]() -> absl::StatusOr<IndexState> {
          const auto found = indexes_.find(batch.key);
          if (found == indexes_.end()) return absl::NotFoundError("no such index");
          Index& index = found->second;
          if (absl::Status status = check_follows(index.state, batch); !status.ok()) return status;
          for (size_t i = 0; i < batch.added.size(); ++i) {
            const auto begin = batch.vectors.begin() + static_cast<ptrdiff_t>(i * kDimension);
            const bool is_new =
                index.vectors.emplace(batch.added[i], Vector(begin, begin + kDimension)).second;
            EXPECT_TRUE(is_new);
          }
          for (const int64_t vector : batch.removed) index.vectors.erase(vector);
          retrieval::advance(index.state, batch);
          index.state.vectors = index.vectors.size();
          if (below(4) == 0) saved_[batch.key] = index;
          return index.state;
        });
  }

  void search(std::shared_ptr<const ShardQuery> query, Duration timeout, std::stop_token,
              Done<ShardHits> done) override {
    call<ShardHits>(timeout, std::move(done), [this, query]() -> absl::StatusOr<ShardHits> {
      const auto found = indexes_.find(query->key);
      if (found == indexes_.end()) return absl::NotFoundError("no such index");
      const Index& index = found->second;
      if (absl::Status status = check_has(index.state, *query); !status.ok()) return status;
      ShardHits hits{.sequence = index.state.applied};
      for (const auto& [id, values] : index.vectors) {
        if (query->allowed != nullptr && !query->allowed->allows(id)) continue;
        const float score = score_of(query->query, values);
        hits.candidates.hits.push_back({score, id, score});
      }
      hits.candidates.limit = std::min(query->k, index.vectors.size());
      hits.candidates.hits = best_hits(std::move(hits.candidates), query->k);
      hits.candidates.limit = std::min(query->k, index.vectors.size());
      return hits;
    });
  }

 private:
  struct Index {
    IndexState state;
    std::map<int64_t, Vector> vectors;
  };

  uint64_t below(uint64_t bound) { return runtime_.random()() % bound; }
  Duration travel() { return std::chrono::microseconds(below(slow_ ? 400'000 : 3000)); }

  template <typename T, typename Execute>
  void call(Duration timeout, Done<T> done, Execute execute) {
    auto reply = std::make_shared<Done<T>>(std::move(done));
    const auto answer = [reply](absl::StatusOr<T> result) {
      if (*reply == nullptr) return;
      Done<T> once = std::exchange(*reply, nullptr);
      once(std::move(result));
    };
    later_.send_after(timeout, Later::Run{[answer] {
                        answer(absl::DeadlineExceededError("no answer in time"));
                      }});
    if (!reliable_ && below(60) == 0) return;  // lost on the way
    later_.send_after(travel(), Later::Run{[this, answer, execute]() mutable {
                        if (!alive_) return answer(absl::UnavailableError("nobody there"));
                        auto result = execute();
                        if (!reliable_ && below(60) == 0) return;  // the answer is lost
                        later_.send_after(travel(),
                                          Later::Run{[this, answer, incarnation = incarnation_,
                                                      result = std::move(result)]() mutable {
                                            if (incarnation == incarnation_)
                                              return answer(std::move(result));
                                            answer(absl::UnavailableError("connection lost"));
                                          }});
                      }});
  }

  SimRuntime& runtime_;
  const uint32_t shard_;
  const ActorRef<Later> later_;
  bool alive_ = true;
  bool slow_ = false;
  bool reliable_ = false;
  uint64_t incarnation_ = 0;
  std::map<IndexKey, Index> indexes_;
  std::map<IndexKey, Index> saved_;
};

// A router's side of the connection to a shard. Nothing comes from a router that has died, but for
// what was under way.
class FakeConnection : public Shard {
 public:
  FakeConnection(std::shared_ptr<FakeShard> shard, std::shared_ptr<const bool> router_lives)
      : shard_(std::move(shard)), router_lives_(std::move(router_lives)) {}

  void bind(const ShardBinding& binding, Duration timeout,
            Done<std::vector<IndexState>> done) override {
    if (*router_lives_) shard_->bind(binding, timeout, std::move(done));
  }
  void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
              Done<IndexState> done) override {
    if (*router_lives_) shard_->create(key, std::move(spec), timeout, std::move(done));
  }
  void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) override {
    if (*router_lives_) shard_->drop(key, timeout, std::move(done));
  }
  void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) override {
    if (*router_lives_) shard_->apply(std::move(batch), timeout, std::move(done));
  }
  void search(std::shared_ptr<const ShardQuery> query, Duration timeout, std::stop_token stop,
              Done<ShardHits> done) override {
    if (*router_lives_) shard_->search(std::move(query), timeout, std::move(stop), std::move(done));
  }

 private:
  const std::shared_ptr<FakeShard> shard_;
  const std::shared_ptr<const bool> router_lives_;
};

}  // namespace ragcache::retrieval::sim
