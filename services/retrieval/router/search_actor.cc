#include "services/retrieval/router/search_actor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/strings.h"
#include "services/retrieval/router/merge.h"

namespace ragcache::retrieval {

SearchActor::SearchActor(std::shared_ptr<const Dependencies> dependencies, SearchQuery query,
                         Address<SearchDone> reply, ActorRef<SearchActor> self)
    : dependencies_(std::move(dependencies)),
      query_(std::move(query)),
      reply_(std::move(reply)),
      self_(self) {}

void SearchActor::handle(Start, ActorContext& context) {
  deadline_ = context.now() + query_.timeout;
  self_.send_after(query_.timeout, TimedOut{});
  begin_round(0, context);
}

void SearchActor::begin_round(uint64_t min_sequence, ActorContext& context) {
  if (++round_ > kRoundsMax) {
    return finish(last_failure_.ok()
                      ? absl::UnavailableError("documents are replaced faster than they can be "
                                               "found; try again later")
                      : last_failure_,
                  context);
  }
  for (Part& part : parts_) part.stop.request_stop();
  parts_.clear();
  min_sequence_ = std::max(min_sequence_, min_sequence);
  if (query_.select == nullptr) return find_routes(context);
  query_.select([self = self_](absl::StatusOr<Selection> selection) {
    self.send(Selected{std::move(selection)});
  });
}

void SearchActor::handle(Selected selected, ActorContext& context) {
  if (!selected.selection.ok()) return finish(selected.selection.status(), context);
  selection_ = *std::move(selected.selection);
  min_sequence_ = std::max(min_sequence_, selection_->from);
  find_routes(context);
}

void SearchActor::find_routes(ActorContext& context) {
  const Duration left = std::max(deadline_ - context.now(), Duration::zero());
  dependencies_->replication.send(
      FindRoutes{.corpus = query_.corpus,
                 .min_sequence = min_sequence_,
                 .patience = std::min(left, dependencies_->shard_timeout),
                 .reply = self_});
}

void SearchActor::handle(RoutesFound routes, ActorContext& context) {
  if (!routes.status.ok()) return finish(routes.status, context);
  routes_ = std::move(routes);
  ShardQuery query{.key = routes_.key,
                   .min_sequence = routes_.min_sequence,
                   .query = query_.vector,
                   .k = query_.k};
  if (selection_.has_value()) query.allowed = selection_->allowed;
  shard_query_ = std::make_shared<const ShardQuery>(std::move(query));
  parts_.resize(routes_.shards.size());
  for (size_t shard = 0; shard < parts_.size(); ++shard) ask(shard, context);
}

void SearchActor::ask(size_t shard, ActorContext& context) {
  Part& part = parts_[shard];
  part.asked_at = context.now();
  part.stop = std::stop_source();
  const size_t attempt = part.attempt;
  const Duration left = std::max(deadline_ - context.now(), Duration::zero());
  routes_.shards[shard][attempt].shard->search(
      shard_query_, left, part.stop.get_token(),
      [self = self_, round = round_, shard, attempt](absl::StatusOr<ShardHits> hits) {
        self.send(ShardAnswered{round, shard, attempt, std::move(hits)});
      });
  self_.send_after(dependencies_->shard_timeout, ShardLate{round_, shard, attempt});
}

void SearchActor::handle(ShardAnswered answered, ActorContext& context) {
  if (answered.round != round_ || parts_.empty()) return;
  Part& part = parts_[answered.shard];
  if (part.candidates.has_value() || part.attempt != answered.attempt) return;
  if (!answered.hits.ok()) {
    return fail_attempt(answered.shard, answered.hits.status(), context);
  }
  dependencies_->metrics->search_seconds[answered.shard]->Observe(
      to_seconds(context.now() - part.asked_at));
  // A vector that the shard has in place of one of the selection would be missed.
  if (selection_.has_value() && answered.hits->sequence > selection_->upto) {
    return begin_round(answered.hits->sequence, context);
  }
  part.candidates = std::move(answered.hits->candidates);
  const bool all_answered =
      std::ranges::all_of(parts_, [](const Part& each) { return each.candidates.has_value(); });
  if (all_answered) merge_parts();
}

void SearchActor::handle(ShardLate late, ActorContext& context) {
  if (late.round != round_ || parts_.empty()) return;
  Part& part = parts_[late.shard];
  if (part.candidates.has_value() || part.attempt != late.attempt) return;
  const std::vector<Route>& routes = routes_.shards[late.shard];
  dependencies_->replication.send(
      ReplicaLate{routes[part.attempt].id, routes[part.attempt].session});
  last_failure_ =
      absl::UnavailableError(str_cat("shard ", late.shard, " does not answer; try again later"));
  if (part.attempt + 1 == routes.size()) return;  // nobody else to ask: it may be just busy
  part.stop.request_stop();
  ++part.attempt;
  ask(late.shard, context);
}

void SearchActor::fail_attempt(size_t shard, absl::Status status, ActorContext& context) {
  const std::vector<Route>& routes = routes_.shards[shard];
  Part& part = parts_[shard];
  const Route& route = routes[part.attempt];
  // A question that does not fit the index fits no other replica either.
  if (absl::IsInvalidArgument(status)) return finish(status, context);
  dependencies_->replication.send(ReplicaFailed{route.id, route.session, status});
  last_failure_ = absl::UnavailableError(
      str_cat("shard ", shard, ": ", std::string(status.message()), "; try again later"));
  if (++part.attempt < routes.size()) return ask(shard, context);
  begin_round(routes_.min_sequence, context);
}

void SearchActor::merge_parts() {
  std::vector<Candidates> candidates;
  for (Part& part : parts_) candidates.push_back(*std::move(part.candidates));
  parts_.clear();
  hits_ = merge(std::move(candidates), query_.k, routes_.spec->options);
  std::vector<int64_t> vectors;
  for (const VectorHit& hit : hits_) vectors.push_back(hit.id);
  dependencies_->store.find_documents(
      query_.corpus, std::move(vectors),
      [self = self_](absl::StatusOr<StoreView::Documents> documents) {
        self.send(DocumentsFound{std::move(documents)});
      });
}

void SearchActor::handle(DocumentsFound found, ActorContext& context) {
  if (!found.documents.ok()) return finish(found.documents.status(), context);
  std::vector<std::optional<DocumentRecord>>& records = found.documents->records;
  std::vector<FoundDocument> documents;
  for (size_t i = 0; i < hits_.size(); ++i) {
    if (!records[i].has_value()) return begin_round(found.documents->sequence, context);
    documents.push_back({*std::move(records[i]), hits_[i].score});
  }
  std::ranges::sort(documents, [](const FoundDocument& a, const FoundDocument& b) {
    return a.score != b.score ? a.score > b.score : a.document.id < b.document.id;
  });
  if (documents.size() > query_.k) documents.resize(query_.k);
  finish(std::move(documents), context);
}

void SearchActor::handle(TimedOut, ActorContext& context) {
  finish(
      last_failure_.ok() ? absl::DeadlineExceededError("the search took too long") : last_failure_,
      context);
}

void SearchActor::handle(Cancel, ActorContext& context) {
  finish(absl::CancelledError("the caller has gone"), context);
}

void SearchActor::finish(absl::StatusOr<std::vector<FoundDocument>> found, ActorContext& context) {
  for (Part& part : parts_) part.stop.request_stop();
  parts_.clear();
  reply_.send(SearchDone{std::move(found)});
  context.stop();
}

}  // namespace ragcache::retrieval
