// What the worker says, and what becomes of requests then.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log/log.h"
#include "services/controller/group_actor.h"

namespace ragcache::controller {
namespace {

// Times a request is sent again after it lost its worker, or found its prefix gone.
constexpr uint32_t kMaxWorkerLosses = 2;
constexpr uint32_t kMaxMisses = 3;
// How long requests wait for a worker that is gone: it may just be loading its model.
constexpr Duration kMaxWorkerAbsence = std::chrono::seconds(30);

// Documents of the chain that lie wholly within its first so many tokens.
uint32_t documents_within(std::span<const SegmentSpec> chain, uint32_t tokens) {
  uint32_t documents = 0;
  for (const SegmentSpec& spec : chain) {
    if (spec.tokens > tokens) break;
    tokens -= spec.tokens;
    if (!spec.name.empty()) ++documents;  // roots have none
  }
  return documents;
}

}  // namespace

void GroupActor::handle(WorkerConnected connected, ActorContext& context) {
  if (connected.connection <= connection_) return;  // overtaken by a newer one
  if (connected_) handle(WorkerLost{connection_, "replaced by a new connection"}, context);
  connected_ = true;
  snapshot_complete_ = false;
  connection_ = connected.connection;
  commands_sent_ = 0;
  info_ = std::move(connected.info);
  commands_ = std::move(connected.commands);
  tree_ = std::make_unique<KnowledgeTree>(*policy_, info_.block_tokens(), info_.host_blocks());
  counted_ = {};
  load_ = {};
  ledger_ = BlockLedger(info_.total_blocks());
  for (auto& [arrival, request] : queue_) expect(request);
  worker::v1::ExecuteRequest command;
  command.mutable_open()->set_controller_term(term_);
  send(std::move(command));
}

void GroupActor::handle(WorkerLost lost, ActorContext& context) {
  if (!connected_ || lost.connection != connection_) return;
  // A stream that was refused was none: the link tells why, once.
  if (snapshot_complete_) {
    log::warn("worker lost", {{"reason", lost.reason}, {"running", running_.size()}});
  }
  connected_ = false;
  lost_reason_ = lost.reason;
  pending_growth_.clear();
  for (auto it = running_.begin(); it != running_.end(); it = running_.begin()) {
    Request request = take_back(it);
    if (request.withdrawn) {
      end_withdrawn(request);
    } else if (++request.worker_losses > kMaxWorkerLosses) {
      end(request,
          absl::UnavailableError(
              absl::StrCat("the worker was lost ", kMaxWorkerLosses + 1, " times: ", lost.reason)),
          worker::v1::FINISH_REASON_UNSPECIFIED);
    } else {
      requeue(std::move(request));
    }
  }
  for (auto& [arrival, request] : queue_) unexpect(request);
  tree_.reset();
  ledger_ = BlockLedger();
  no_worker_at(context.now());
  dispatch(context);
}

void GroupActor::handle(WorkerUnreachable unreachable, ActorContext& context) {
  if (connected_) return;
  lost_reason_ = std::move(unreachable.reason);
  no_worker_at(context.now());
}

void GroupActor::handle(WorkerProfiled profiled, ActorContext&) {
  if (profiled.connection != connection_) return;
  const worker::v1::PrefillProfile& table = profiled.profile;
  absl::StatusOr<PrefillCost> cost =
      PrefillCost::create({table.cached_tokens().begin(), table.cached_tokens().end()},
                          {table.new_tokens().begin(), table.new_tokens().end()},
                          {table.seconds().begin(), table.seconds().end()});
  if (!cost.ok()) {
    log::error("the worker's table of prefill times makes no sense; it is not used",
               {{"reason", std::string(cost.status().message())}});
    return;
  }
  *prefill_cost_ = *std::move(cost);
}

void GroupActor::no_worker_at(TimePoint now) {
  if (!absent_since_.has_value()) absent_since_ = now;
  if (now - *absent_since_ < kMaxWorkerAbsence) return;
  given_up_ = true;
  while (!queue_.empty()) {
    Request request = dequeue(queue_.begin());
    end(request, no_worker(), worker::v1::FINISH_REASON_UNSPECIFIED);
  }
  update_gauges();
}

void GroupActor::handle(WorkerEvent event, ActorContext& context) {
  if (!connected_ || event.connection != connection_) return;
  using Body = worker::v1::ExecuteResponse::BodyCase;
  switch (event.event.body_case()) {
    case Body::kSnapshot:
      on_snapshot(event.event.snapshot());
      break;
    case Body::kSegmentReady:
      on_segment_ready(event.event.segment_ready());
      break;
    case Body::kSegmentSaved:
      if (const auto id = SegmentId::parse(event.event.segment_saved().segment_id()); id.ok()) {
        tree_->set_on_host(*id);
      }
      return;
    case Body::kSegmentLost:
      on_segment_lost(event.event.segment_lost());
      break;
    case Body::kTokens:
      on_tokens(event.event.tokens());
      return;  // changes nothing that a waiting request could use
    case Body::kNeedBlocks:
      on_need_blocks(event.event.need_blocks());
      break;
    case Body::kLoad:
      on_load(event.event.load());
      return;
    case Body::kFinished:
      on_finished(event.event.finished());
      break;
    case Body::kCancelled:
      on_cancelled(event.event.cancelled());
      break;
    case Body::kFailed:
      on_failed(event.event.failed());
      break;
    case Body::BODY_NOT_SET:
      break;
  }
  dispatch(context);
}

void GroupActor::on_snapshot(const worker::v1::Snapshot& snapshot) {
  std::vector<Move> homeless;
  for (const worker::v1::Snapshot::Entry& entry : snapshot.entries()) {
    const uint32_t blocks = blocks_of(entry.token_count());
    const auto id = SegmentId::parse(entry.segment_id());
    if (!id.ok() || entry.token_count() == 0 || (!entry.on_device() && !entry.on_host()) ||
        (entry.on_device() && blocks > ledger_.free())) {
      log::error("snapshot entry makes no sense; ignored", {{"tokens", entry.token_count()}});
      continue;
    }
    const bool is_root = entry.parent_id().empty();
    const SegmentId parent =
        is_root ? SegmentId{} : SegmentId::parse(entry.parent_id()).value_or(SegmentId{});
    const SegmentSpec spec{*id, entry.token_count()};
    bool on_device = entry.on_device();
    bool on_host = entry.on_host();
    if (!tree_->restore(spec, parent, is_root, on_device, on_host)) {
      // Perhaps its parent is on one of the tiers only.
      if (on_host) homeless.push_back({Move::Kind::kDropHost, *id, blocks});
      on_host = false;
      if (on_device && !tree_->restore(spec, parent, is_root, true, false)) {
        homeless.push_back({Move::Kind::kDropDevice, *id, blocks});
        on_device = false;
      }
    }
    if (on_device) ledger_.cache_free(blocks);
  }
  std::reverse(homeless.begin(), homeless.end());  // children first
  send_moves(homeless);
  if (!snapshot.last_page()) return;
  snapshot_complete_ = true;
  absent_since_.reset();
  given_up_ = false;
  for (const auto& [id, chain] : kept_) tree_->keep(chain, true);
}

void GroupActor::on_segment_ready(const worker::v1::SegmentReady& ready) {
  Request* request = find_running(ready.request_id());
  const auto id = SegmentId::parse(ready.segment_id());
  if (request == nullptr || !id.ok()) return;
  // A segment that the tree had but the worker had lost is computed out of the private share.
  const uint32_t of_segments = std::min(ready.blocks(), request->reserved_segment_blocks);
  const uint32_t of_private =
      std::min(ready.blocks() - of_segments, request->reserved_private_blocks);
  request->reserved_segment_blocks -= of_segments;
  request->reserved_private_blocks -= of_private;
  const uint32_t blocks = of_segments + of_private;
  if (!tree_->set_on_device(*id)) return ledger_.unreserve(blocks);
  ledger_.cache_reserved(blocks);
  carry_out(tree_->replicate(*id, false));
  if (auto kept = kept_.find(*id); kept != kept_.end()) tree_->keep(kept->second, true);
}

void GroupActor::on_segment_lost(const worker::v1::SegmentLost& lost) {
  const auto id = SegmentId::parse(lost.segment_id());
  if (!id.ok()) return;
  ++lost_copies_;
  metrics_->lost_copies.Increment();
  log::error("the host copy of a segment is lost; it is computed again when it is wanted",
             {{"segment", id->to_string()}, {"reason", lost.reason()}});
  carry_out(tree_->lose(*id, Tier::kHost));
}

void GroupActor::on_tokens(const worker::v1::Tokens& tokens) {
  Request* request = find_running(tokens.request_id());
  if (request == nullptr) return;
  TokensArrived arrived;
  arrived.tokens.assign(tokens.ids().begin(), tokens.ids().end());
  arrived.logprobs.assign(tokens.logprobs().begin(), tokens.logprobs().end());
  deliver(*request, std::move(arrived),
          {tokens.cached_device_tokens(), tokens.cached_host_tokens()});
}

void GroupActor::deliver(Request& request, TokensArrived arrived, CachedTokens cached) {
  arrived.choice = request.submit.choice;
  if (!request.hits_counted) {
    request.hits_counted = true;
    const CachedTokens first = request.first_cached.value_or(CachedTokens{});
    // What was on the host then may be on the device when the request comes again.
    const uint32_t host = std::min(cached.device + cached.host, first.host);
    const uint32_t device = std::min(cached.device + cached.host - host, first.device);
    arrived.admission = {
        .at = request.admitted,
        .scheduling = request.scheduling,
        .cached_tokens = device + host,
        .cached_documents = documents_within(request.submit.plan->chain, device + host)};
    // Further choices find what the first one computed: that is no work that the cache saved.
    if (request.submit.choice == 0) {
      const uint32_t queries = request.submit.plan->prefix_tokens();
      queried_tokens_ += queries;
      device_hit_tokens_ += device;
      host_hit_tokens_ += host;
      metrics_->queries_tokens.Increment(queries);
      metrics_->hits_device_tokens.Increment(device);
      metrics_->hits_host_tokens.Increment(host);
    }
  }
  request.generated.insert(request.generated.end(), arrived.tokens.begin(), arrived.tokens.end());
  if (!request.withdrawn) request.submit.reply.send(std::move(arrived));
}

void GroupActor::on_need_blocks(const worker::v1::NeedBlocks& need) {
  pending_growth_.push_back(need);
}

void GroupActor::on_load(const worker::v1::Load& load) {
  load_ = load;
  if (load.last_command() != commands_sent_) return;  // it has not seen all that the ledger has
  if (load.free_blocks() == ledger_.free() && load.reserved_blocks() == ledger_.reserved() &&
      load.cached_blocks() == ledger_.cached() &&
      load.host_cached_blocks() == tree_->host_blocks()) {
    return;
  }
  ++ledger_mismatches_;
  metrics_->ledger_mismatches.Increment();
  log::error("ledger differs from the worker's count",
             {{"free", ledger_.free()},
              {"worker_free", load.free_blocks()},
              {"reserved", ledger_.reserved()},
              {"worker_reserved", load.reserved_blocks()},
              {"cached", ledger_.cached()},
              {"worker_cached", load.cached_blocks()},
              {"host_cached", tree_->host_blocks()},
              {"worker_host_cached", load.host_cached_blocks()}});
}

void GroupActor::on_finished(const worker::v1::Finished& finished) {
  auto it = running_.find(finished.request_id());
  if (it == running_.end()) return;
  Request request = take_back(it);
  if (request.withdrawn) return end_withdrawn(request);  // its last tokens went nowhere
  // An answer without a token still had a prefix.
  if (!request.hits_counted) {
    deliver(request, {}, {finished.cached_device_tokens(), finished.cached_host_tokens()});
  }
  if (request.submit.keep && !request.submit.plan->chain.empty()) {
    const std::vector<SegmentSpec>& chain = request.submit.plan->chain;
    if (tree_->keep(chain, true)) kept_[chain.back().id] = chain;
  }
  end(request, absl::OkStatus(), finished.reason());
}

void GroupActor::on_cancelled(const worker::v1::Cancelled& cancelled) {
  auto it = running_.find(cancelled.request_id());
  if (it == running_.end()) return;
  Request request = take_back(it);
  end_withdrawn(request);
}

void GroupActor::on_failed(const worker::v1::Failed& failed) {
  auto it = running_.find(failed.request_id());
  if (it == running_.end()) return;
  Request request = take_back(it);
  if (request.withdrawn) return end_withdrawn(request);
  switch (failed.code()) {
    case worker::v1::FAILURE_CODE_PREEMPTED:
      requeue(std::move(request));
      return;
    case worker::v1::FAILURE_CODE_MISSING: {
      for (const std::string& bytes : failed.missing_segment_ids()) {
        if (const auto id = SegmentId::parse(bytes); id.ok()) {
          carry_out(tree_->lose(*id, Tier::kDevice));  // what lay below it is out of reach
        }
      }
      if (++request.misses <= kMaxMisses) {
        requeue(std::move(request));
        return;
      }
      break;
    }
    default:
      break;
  }
  log::error("request failed on the worker",
             {{"request_id", request.submit.request_id}, {"error", failed.message()}});
  end(request,
      failed.code() == worker::v1::FAILURE_CODE_INVALID
          ? absl::InvalidArgumentError(failed.message())
          : absl::InternalError(absl::StrCat("the worker failed: ", failed.message())),
      worker::v1::FINISH_REASON_UNSPECIFIED);
}

}  // namespace ragcache::controller
