#include "services/retrieval/router/replication.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ragcache::retrieval {

Replication::Replication(std::span<const uint32_t> replicas) {
  RAG_CHECK(!replicas.empty());
  for (const uint32_t count : replicas) {
    RAG_CHECK(count > 0);
    shards_.emplace_back(count);
  }
}

void Replication::open_corpus(int64_t corpus, std::vector<uint64_t> generations,
                              uint64_t sequence) {
  RAG_CHECK(generations.size() == 1 || generations.size() == 2);
  const bool is_new =
      corpora_.emplace(corpus, Corpus{std::move(generations), sequence, sequence}).second;
  RAG_CHECK(is_new);
}

void Replication::close_corpus(int64_t corpus) { corpora_.erase(corpus); }

void Replication::add_generation(int64_t corpus, uint64_t generation) {
  std::vector<uint64_t>& generations = corpora_.at(corpus).generations;
  RAG_CHECK(generations.size() == 1);
  generations.push_back(generation);
}

void Replication::committed(int64_t corpus, uint64_t sequence, Ticket ticket) {
  if (const auto found = corpora_.find(corpus); found != corpora_.end()) {
    found->second.committed = std::max(found->second.committed, sequence);
  }
  commits_.emplace(ticket, Commit{corpus, sequence});
}

void Replication::give_up(Ticket ticket) {
  if (const auto found = commits_.find(ticket); found != commits_.end()) {
    found->second.gave_up = true;
  }
}

void Replication::connected(ReplicaId id, std::span<const IndexState> indexes) {
  Replica& replica = at(id);
  replica.connected = true;
  replica.suspect = false;
  replica.indexes.clear();
  for (const IndexState& index : indexes) replica.indexes[index.key] = index;
}

void Replication::disconnected(ReplicaId id) {
  at(id).connected = false;
  at(id).indexes.clear();
}

void Replication::updated(ReplicaId id, const IndexState& index) {
  at(id).suspect = false;
  at(id).indexes[index.key] = index;
}

void Replication::dropped(ReplicaId id, const IndexKey& key) { at(id).indexes.erase(key); }

bool Replication::is_known(const IndexKey& key) const {
  const auto corpus = corpora_.find(key.corpus);
  return corpus != corpora_.end() &&
         std::ranges::count(corpus->second.generations, key.generation) > 0;
}

bool Replication::needs_push(const IndexState& index) const {
  return !index.has(corpora_.at(index.key.corpus).committed);
}

std::optional<ReplicaTask> Replication::next_task(ReplicaId id) {
  Replica& replica = at(id);
  if (!replica.connected) return std::nullopt;
  for (const auto& [key, index] : replica.indexes) {
    if (!is_known(key)) return ReplicaTask{ReplicaTask::Kind::kDrop, key};
  }
  for (const auto& [number, corpus] : corpora_) {
    for (const uint64_t generation : corpus.generations) {
      const IndexKey key{number, generation};
      const auto index = replica.indexes.find(key);
      // Ahead of the store is an index that saw commits which the store has lost.
      if (index == replica.indexes.end() || index->second.applied > corpus.committed) {
        return ReplicaTask{ReplicaTask::Kind::kCreate, key};
      }
    }
  }
  // Round the keys once, from the one after the last.
  auto index = replica.last_pushed.has_value() ? replica.indexes.upper_bound(*replica.last_pushed)
                                               : replica.indexes.begin();
  for (size_t i = 0; i < replica.indexes.size(); ++i, ++index) {
    if (index == replica.indexes.end()) index = replica.indexes.begin();
    if (!needs_push(index->second)) continue;
    replica.last_pushed = index->first;
    const IndexState& state = index->second;
    return ReplicaTask{
        ReplicaTask::Kind::kPush, state.key, {.sequence = state.applied, .origin = state.origin}};
  }
  return std::nullopt;
}

bool Replication::has(const Replica& replica, const IndexKey& key, uint64_t sequence) {
  if (!replica.connected) return false;
  const auto index = replica.indexes.find(key);
  return index != replica.indexes.end() && index->second.has(sequence);
}

bool Replication::every_shard_has(const IndexKey& key, uint64_t sequence) const {
  return std::ranges::all_of(shards_, [&](const std::vector<Replica>& replicas) {
    return std::ranges::any_of(replicas,
                               [&](const Replica& replica) { return has(replica, key, sequence); });
  });
}

bool Replication::is_done(const Commit& commit) const {
  const auto corpus = corpora_.find(commit.corpus);
  if (corpus == corpora_.end()) return true;
  const IndexKey key{commit.corpus, corpus->second.generations[0]};
  return std::ranges::all_of(shards_, [&](const std::vector<Replica>& replicas) {
    bool any_connected = false;
    for (const Replica& replica : replicas) {
      if (has(replica, key, commit.sequence)) return true;
      any_connected = any_connected || replica.connected;
    }
    return commit.gave_up && !any_connected;
  });
}

Replication::Advance Replication::advance() {
  Advance done;
  for (auto& [number, corpus] : corpora_) {
    if (corpus.generations.size() < 2) continue;
    if (!every_shard_has({number, corpus.generations[1]}, corpus.acknowledged)) continue;
    done.retired.push_back({number, corpus.generations[0]});
    corpus.generations.erase(corpus.generations.begin());
  }
  for (auto commit = commits_.begin(); commit != commits_.end();) {
    if (!is_done(commit->second)) {
      ++commit;
      continue;
    }
    if (const auto corpus = corpora_.find(commit->second.corpus); corpus != corpora_.end()) {
      corpus->second.acknowledged = std::max(corpus->second.acknowledged, commit->second.sequence);
    }
    done.acknowledged.push_back(commit->first);
    commit = commits_.erase(commit);
  }
  return done;
}

std::optional<Replication::Candidates> Replication::candidates(int64_t corpus,
                                                               uint64_t min_sequence) {
  const Corpus& of = corpora_.at(corpus);
  Candidates found{.key = {corpus, of.generations[0]},
                   .min_sequence = std::max(min_sequence, of.acknowledged)};
  ++turn_;
  for (const std::vector<Replica>& replicas : shards_) {
    std::vector<uint32_t>& order = found.replicas.emplace_back();
    const auto count = static_cast<uint32_t>(replicas.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t replica = (turn_ + i) % count;
      if (has(replicas[replica], found.key, found.min_sequence)) order.push_back(replica);
    }
    if (order.empty()) return std::nullopt;
    std::ranges::stable_partition(order,
                                  [&](uint32_t replica) { return !replicas[replica].suspect; });
  }
  return found;
}

std::optional<uint32_t> Replication::serving_replica(uint32_t shard) const {
  const auto replicas = static_cast<uint32_t>(shards_[shard].size());
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    const bool has_all = std::ranges::all_of(corpora_, [&](const auto& entry) {
      const auto& [number, corpus] = entry;
      return has(shards_[shard][replica], {number, corpus.generations[0]}, corpus.acknowledged);
    });
    if (shards_[shard][replica].connected && has_all) return replica;
  }
  return std::nullopt;
}

uint64_t Replication::vectors(ReplicaId id) const {
  uint64_t total = 0;
  for (const auto& [key, index] : at(id).indexes) {
    const auto corpus = corpora_.find(key.corpus);
    const bool is_serving =
        corpus != corpora_.end() && corpus->second.generations[0] == key.generation;
    if (is_serving) total += index.vectors;
  }
  return total;
}

uint64_t Replication::lag(ReplicaId id) const {
  const Replica& replica = at(id);
  uint64_t most = 0;
  for (const auto& [number, corpus] : corpora_) {
    const auto index = replica.indexes.find({number, corpus.generations[0]});
    const uint64_t applied = index == replica.indexes.end() ? 0 : index->second.applied;
    most = std::max(most, corpus.committed - std::min(applied, corpus.committed));
  }
  return most;
}

}  // namespace ragcache::retrieval
