#include "services/retrieval/router/replication_actor.h"

#include <algorithm>
#include <utility>

#include "common/log/log.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

std::vector<uint32_t> replica_counts(const std::vector<std::vector<ReplicaEndpoint>>& shards) {
  std::vector<uint32_t> counts;
  for (const auto& replicas : shards) counts.push_back(static_cast<uint32_t>(replicas.size()));
  return counts;
}

}  // namespace

ReplicationActor::ReplicationActor(std::vector<std::vector<ReplicaEndpoint>> shards,
                                   const Digest& store_id, StoreView& store,
                                   std::shared_ptr<ShardMetrics> metrics, Observer observer,
                                   ActorRef<ReplicationActor> self)
    : store_id_(store_id),
      store_(store),
      metrics_(std::move(metrics)),
      observer_(std::move(observer)),
      self_(self),
      replication_(replica_counts(shards)) {
  for (std::vector<ReplicaEndpoint>& replicas : shards) {
    std::vector<Replica>& of_shard = shards_.emplace_back();
    for (ReplicaEndpoint& endpoint : replicas) of_shard.push_back({std::move(endpoint)});
  }
}

void ReplicationActor::handle(Start, ActorContext& context) {
  for (uint32_t shard = 0; shard < replication_.shards(); ++shard) {
    for (uint32_t replica = 0; replica < replication_.replicas(shard); ++replica) {
      handle(Bind{{shard, replica}, 0}, context);
    }
  }
}

void ReplicationActor::handle(OpenCorpus open, ActorContext&) {
  std::vector<uint64_t> numbers;
  for (Generation& generation : open.generations) {
    numbers.push_back(generation.number);
    specs_[{open.corpus, generation.number}] = std::move(generation.spec);
  }
  replication_.open_corpus(open.corpus, std::move(numbers), open.sequence);
  settle();
}

void ReplicationActor::handle(CloseCorpus close, ActorContext&) {
  replication_.close_corpus(close.corpus);
  std::erase_if(specs_, [&](const auto& entry) { return entry.first.corpus == close.corpus; });
  settle();
}

void ReplicationActor::handle(AddGeneration add, ActorContext&) {
  if (!replication_.is_open(add.corpus)) return;
  specs_[{add.corpus, add.generation.number}] = std::move(add.generation.spec);
  replication_.add_generation(add.corpus, add.generation.number);
  settle();
}

void ReplicationActor::handle(Committed committed, ActorContext&) {
  const Replication::Ticket ticket = next_number_++;
  replication_.committed(committed.corpus, committed.sequence, ticket);
  commits_.emplace(ticket, std::move(committed.reply));
  self_.send_after(kCommitPatience, CommitExpired{ticket});
  settle();
}

void ReplicationActor::handle(CommitExpired expired, ActorContext&) {
  replication_.give_up(expired.ticket);
  settle();
}

void ReplicationActor::handle(FindRoutes find, ActorContext&) {
  if (answer(find)) return;
  const uint64_t number = next_number_++;
  self_.send_after(find.patience, RoutesExpired{number});
  waiting_.emplace(number, std::move(find));
}

void ReplicationActor::handle(RoutesExpired expired, ActorContext&) {
  const auto found = waiting_.find(expired.number);
  if (found == waiting_.end()) return;
  found->second.reply.send(RoutesFound{absl::UnavailableError(missing())});
  waiting_.erase(found);
}

void ReplicationActor::handle(ReplicaFailed failed, ActorContext& context) {
  metrics_->failures[failed.id.shard]->Increment();
  if (failed.session == at(failed.id).session) lose(failed.id, failed.status, context);
}

void ReplicationActor::handle(ReplicaLate late, ActorContext&) {
  metrics_->failures[late.id.shard]->Increment();
  if (late.session == at(late.id).session) replication_.suspected(late.id);
}

void ReplicationActor::handle(Bind bind, ActorContext&) {
  Replica& replica = at(bind.id);
  if (bind.session != replica.session) return;
  const ShardBinding binding = {
      .store_id = store_id_, .shard = bind.id.shard, .shards = replication_.shards()};
  replica.endpoint.shard->bind(
      binding, kBindTimeout,
      [self = self_, bind,
       changes = replica.changes](absl::StatusOr<std::vector<IndexState>> indexes) {
        self.send(Bound{bind.id, bind.session, changes, std::move(indexes)});
      });
}

void ReplicationActor::handle(Bound bound, ActorContext& context) {
  Replica& replica = at(bound.id);
  if (bound.session != replica.session) return;
  if (!bound.indexes.ok()) return lose(bound.id, bound.indexes.status(), context);
  const auto say = [&](const char* what) {
    log::info(what, {{"shard", bound.id.shard}, {"address", replica.endpoint.name}});
  };
  if (!replication_.is_connected(bound.id)) {
    if (replica.reason.empty()) say("shard connected");
  } else {
    // Only now it is well: one may bind each time, and fail at the first change.
    if (!replica.reason.empty()) say("shard is back");
    replica.pause = kPauseMin;
    replica.reason.clear();
  }
  self_.send_after(kHeartbeat, Bind{bound.id, bound.session});
  // What was said before a change began is no news after it.
  if (bound.changes == replica.changes) replication_.connected(bound.id, *bound.indexes);
  settle();
}

// Starts a new session: whatever is under way no longer counts.
void ReplicationActor::lose(ReplicaId id, const absl::Status& status, ActorContext& context) {
  Replica& replica = at(id);
  const std::string reason(status.message());
  if (reason != replica.reason) {
    log::warn("shard lost",
              {{"shard", id.shard}, {"address", replica.endpoint.name}, {"reason", reason}});
  }
  replica.reason = reason;
  replica.changing = false;
  const uint64_t session = ++replica.session;
  replication_.disconnected(id);
  // A random half of the pause: replicas that were lost together come back one by one.
  const auto half = static_cast<uint64_t>(replica.pause.count()) / 2;
  const Duration pause(static_cast<int64_t>(half + context.random() % (half + 1)));
  self_.send_after(pause, Bind{id, session});
  replica.pause = std::min(2 * replica.pause, kPauseMax);
  settle();
}

void ReplicationActor::start_task(ReplicaId id) {
  Replica& replica = at(id);
  if (replica.changing) return;
  const std::optional<ReplicaTask> task = replication_.next_task(id);
  if (!task.has_value()) return;
  replica.changing = true;
  ++replica.changes;
  const uint64_t session = replica.session;
  auto done = [self = self_, id, session, task = *task](absl::StatusOr<IndexState> index) {
    self.send(TaskDone{id, session, task, std::move(index)});
  };
  switch (task->kind) {
    case ReplicaTask::Kind::kCreate:
      replica.endpoint.shard->create(task->key, specs_.at(task->key), kChangeTimeout,
                                     std::move(done));
      break;
    case ReplicaTask::Kind::kDrop:
      replica.endpoint.shard->drop(task->key, kChangeTimeout, std::move(done));
      break;
    case ReplicaTask::Kind::kPush:
      store_.read_changes(
          task->key, task->position, {id.shard, replication_.shards()},
          [self = self_, id, session, key = task->key](absl::StatusOr<ChangeBatch> batch) {
            self.send(ChangesRead{id, session, key, std::move(batch)});
          });
      break;
  }
}

void ReplicationActor::handle(ChangesRead read, ActorContext& context) {
  Replica& replica = at(read.id);
  if (read.session != replica.session) return;
  if (absl::IsOutOfRange(read.batch.status())) {
    log::info("the index of a shard begins anew",
              {{"shard", read.id.shard},
               {"address", replica.endpoint.name},
               {"reason", std::string(read.batch.status().message())}});
    replica.changing = false;
    replication_.dropped(read.id, read.key);
    return settle();
  }
  if (!read.batch.ok()) return lose(read.id, read.batch.status(), context);
  const ReplicaTask task = {ReplicaTask::Kind::kPush, read.key};
  replica.endpoint.shard->apply(
      *std::move(read.batch), kChangeTimeout,
      [self = self_, id = read.id, session = read.session, task](absl::StatusOr<IndexState> index) {
        self.send(TaskDone{id, session, task, std::move(index)});
      });
}

void ReplicationActor::handle(TaskDone done, ActorContext& context) {
  Replica& replica = at(done.id);
  if (done.session != replica.session) return;
  replica.changing = false;
  if (!done.index.ok()) {
    metrics_->failures[done.id.shard]->Increment();
    return lose(done.id, done.index.status(), context);
  }
  if (done.task.kind == ReplicaTask::Kind::kDrop) {
    replication_.dropped(done.id, done.task.key);
  } else {
    replication_.updated(done.id, *done.index);
    if (done.index->wasteful) {
      observer_.send(GenerationWasteful{done.task.key.corpus, done.task.key.generation});
    }
  }
  settle();
}

// Does what has become possible or due.
void ReplicationActor::settle() {
  const Replication::Advance advance = replication_.advance();
  for (const IndexKey& key : advance.retired) {
    specs_.erase(key);
    observer_.send(GenerationServing{key.corpus, replication_.serving_generation(key.corpus)});
  }
  for (const Replication::Ticket ticket : advance.acknowledged) {
    const auto commit = commits_.find(ticket);
    commit->second.send(CommitAcknowledged{});
    commits_.erase(commit);
  }
  std::erase_if(waiting_, [this](const auto& entry) { return answer(entry.second); });
  for (uint32_t shard = 0; shard < replication_.shards(); ++shard) {
    for (uint32_t replica = 0; replica < replication_.replicas(shard); ++replica) {
      start_task({shard, replica});
    }
  }
  publish_status();
}

bool ReplicationActor::answer(const FindRoutes& find) {
  if (!replication_.is_open(find.corpus)) {
    find.reply.send(RoutesFound{absl::NotFoundError("corpus: it has been deleted")});
    return true;
  }
  const auto candidates = replication_.candidates(find.corpus, find.min_sequence);
  if (!candidates.has_value()) return false;
  RoutesFound found{.key = candidates->key,
                    .spec = specs_.at(candidates->key),
                    .min_sequence = candidates->min_sequence};
  for (uint32_t shard = 0; shard < replication_.shards(); ++shard) {
    std::vector<Route>& routes = found.shards.emplace_back();
    for (const uint32_t number : candidates->replicas[shard]) {
      const ReplicaId id{shard, number};
      routes.push_back({id, at(id).session, at(id).endpoint.shard});
    }
  }
  find.reply.send(std::move(found));
  return true;
}

// Which shard a search waits for, and why.
std::string ReplicationActor::missing() const {
  for (size_t shard = 0; shard < status_.shards.size(); ++shard) {
    if (status_.shards[shard].serving) continue;
    return str_cat("shard ", shard,
                   " has no replica that is up to date: ", status_.shards[shard].reason,
                   "; try again later");
  }
  return "the documents change faster than the shards can follow; try again later";
}

void ReplicationActor::publish_status() {
  ClusterStatus status;
  for (uint32_t shard = 0; shard < replication_.shards(); ++shard) {
    const std::optional<uint32_t> serving = replication_.serving_replica(shard);
    const ReplicaId shown{shard, serving.value_or(0)};
    ShardStatus& of_shard = status.shards.emplace_back();
    of_shard.address = at(shown).endpoint.name;
    of_shard.serving = serving.has_value();
    of_shard.vectors = replication_.vectors(shown);
    for (uint32_t number = 0; number < replication_.replicas(shard); ++number) {
      const ReplicaId id{shard, number};
      const uint64_t lag = replication_.lag(id);
      metrics_->lag[shard][number]->Set(static_cast<double>(lag));
      if (of_shard.serving) continue;
      std::string reason = at(id).reason;
      if (reason.empty()) {
        reason =
            replication_.is_connected(id) ? "is being brought up to date" : "not connected yet";
      }
      if (!of_shard.reason.empty()) of_shard.reason += "; ";
      of_shard.reason += str_cat(at(id).endpoint.name, ": ", reason);
    }
  }
  if (status == status_) return;
  status_ = std::move(status);
  observer_.send(status_);
}

}  // namespace ragcache::retrieval
