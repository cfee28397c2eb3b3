#include "services/controller/group_actor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log/log.h"

namespace ragcache::controller {
namespace {

// Decode's share of a reservation at admission; more comes by NeedBlocks.
constexpr uint32_t kFirstGrowthTokens = 64;

}  // namespace

GroupActor::GroupActor(const Config& config, uint64_t term, std::unique_ptr<EvictionPolicy> policy,
                       std::shared_ptr<Metrics> metrics)
    : config_(config), term_(term), policy_(std::move(policy)), metrics_(std::move(metrics)) {}

// ---- requests

void GroupActor::handle(Submit submit, ActorContext& context) {
  const auto refuse = [&submit](absl::Status status) {
    submit.reply.send(
        GroupEnded{submit.choice, std::move(status), worker::v1::FINISH_REASON_UNSPECIFIED});
  };
  if (given_up_) return refuse(no_worker());
  if (queue_.size() >= config_.max_waiting) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "max_waiting: ", config_.max_waiting, " requests wait already; try again later")));
  }
  const uint64_t arrival = ++arrivals_;
  Request request;
  request.submit = std::move(submit);
  request.arrival = arrival;
  queue_.emplace(arrival, std::move(request));
  dispatch(context);
}

void GroupActor::handle(Withdraw withdraw, ActorContext& context) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (it->second.submit.request_id != withdraw.request_id) continue;
    Request request = std::move(it->second);
    queue_.erase(it);
    end_withdrawn(request);
    dispatch(context);
    return;
  }
  Request* request = find_running(withdraw.request_id);
  if (request == nullptr || request->withdrawn) return;
  request->withdrawn = true;
  worker::v1::ExecuteRequest command;
  command.mutable_cancel()->set_request_id(withdraw.request_id);
  send(std::move(command));
}

void GroupActor::dispatch(ActorContext& context) {
  if (connected_ && snapshot_complete_) {
    grow_pending();
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (running_.size() >= config_.max_running || !pending_growth_.empty()) break;
      Request& request = it->second;
      if (request.submit.max_tokens == 0) {
        const uint32_t prompt = request.submit.plan->prompt_tokens();
        const uint32_t room = info_.context_tokens() > prompt ? info_.context_tokens() - prompt : 1;
        request.submit.max_tokens = std::min(config_.max_tokens, room);
      }
      if (absl::Status fits = check_fits(request.submit); !fits.ok()) {
        Request refused = std::move(request);
        it = queue_.erase(it);
        end(refused, std::move(fits), worker::v1::FINISH_REASON_UNSPECIFIED);
        continue;
      }
      const Admission admission = admit(request, context);
      if (admission == Admission::kDoesNotFit) break;
      if (admission == Admission::kWaitsForPrefix) {
        ++it;
        continue;
      }
      std::string id = request.submit.request_id;
      const bool is_new = running_.emplace(std::move(id), std::move(request)).second;
      RAG_CHECK(is_new);
      it = queue_.erase(it);
    }
  }
  update_gauges();
}

GroupActor::Admission GroupActor::admit(Request& request, ActorContext& context) {
  const PromptPlan& plan = *request.submit.plan;
  const KnowledgeTree::Match match = tree_->match(plan.chain);
  if (match.computing) return Admission::kWaitsForPrefix;

  uint32_t segment_blocks = 0;
  for (size_t i = match.cached; i < plan.chain.size(); ++i) {
    segment_blocks += blocks_of(plan.chain[i].tokens);
  }
  const uint32_t private_blocks =
      blocks_of(request.tail_tokens() + std::min(request.tokens_left(), kFirstGrowthTokens));

  // The cached part is held while room is made, or eviction might take it.
  const auto cached = std::span(plan.chain).first(match.cached);
  tree_->hold(cached);
  const bool fits = make_room(segment_blocks + private_blocks);
  tree_->release(cached);
  if (!fits) return Admission::kDoesNotFit;

  tree_->acquire(plan.chain);
  ledger_.reserve(segment_blocks + private_blocks);
  request.reserved_segment_blocks = segment_blocks;
  request.reserved_private_blocks = private_blocks;
  request.preempting = false;
  if (!request.first_cached_tokens.has_value()) {
    request.admitted = context.now();
    uint32_t tokens = 0;
    for (const SegmentSpec& spec : cached) tokens += spec.tokens;
    request.first_cached_tokens = tokens;
  }
  send(generate_command(request, match.cached));
  return Admission::kSent;
}

worker::v1::ExecuteRequest GroupActor::generate_command(const Request& request,
                                                        size_t cached) const {
  const PromptPlan& plan = *request.submit.plan;
  worker::v1::ExecuteRequest command;
  worker::v1::Generate& generate = *command.mutable_generate();
  generate.set_request_id(request.submit.request_id);
  for (size_t i = 0; i < plan.chain.size(); ++i) {
    worker::v1::Segment& segment = *generate.add_segments();
    segment.set_id(std::string(plan.chain[i].id.as_bytes()));
    segment.mutable_tokens()->Add(plan.segment_tokens[i].begin(), plan.segment_tokens[i].end());
    segment.set_expected_tier(i < cached ? types::v1::TIER_DEVICE : types::v1::TIER_NONE);
  }
  generate.mutable_tail_tokens()->Add(plan.tail.begin(), plan.tail.end());
  generate.mutable_tail_tokens()->Add(request.generated.begin(), request.generated.end());
  generate.set_answer_tokens(static_cast<uint32_t>(request.generated.size()));
  generate.set_reserved_blocks(request.reserved_segment_blocks + request.reserved_private_blocks);
  *generate.mutable_sampling() = request.submit.sampling;
  generate.set_max_tokens(request.tokens_left());
  generate.mutable_stop_tokens()->Add(request.submit.stop_tokens.begin(),
                                      request.submit.stop_tokens.end());
  generate.set_logprobs(request.submit.logprobs);
  generate.set_top_logprobs(request.submit.top_logprobs);
  return command;
}

absl::Status GroupActor::check_fits(const Submit& submit) const {
  const PromptPlan& plan = *submit.plan;
  const uint64_t context = uint64_t{plan.prompt_tokens()} + submit.max_tokens;
  if (context > info_.context_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tokens: the prompt's ", plan.prompt_tokens(), " tokens and max_tokens ",
        submit.max_tokens, " are together over the model's context of ", info_.context_tokens()));
  }
  uint32_t blocks = blocks_of(static_cast<uint32_t>(plan.tail.size()) + submit.max_tokens);
  for (const SegmentSpec& spec : plan.chain) blocks += blocks_of(spec.tokens);
  if (blocks > ledger_.total()) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens: the prompt's ", plan.prompt_tokens(), " tokens and max_tokens ",
                     submit.max_tokens, " need ", blocks, " blocks of KV memory, the worker has ",
                     ledger_.total()));
  }
  return absl::OkStatus();
}

bool GroupActor::make_room(uint32_t blocks) {
  if (ledger_.free() >= blocks) return true;
  const uint32_t missing = blocks - ledger_.free();
  if (missing > tree_->evictable_blocks()) return false;
  const std::vector<SegmentId> evicted = tree_->evict(missing);
  evicted_nodes_ += evicted.size();
  metrics_->evicted_nodes.Increment(static_cast<double>(evicted.size()));
  drop(evicted);
  return true;
}

void GroupActor::grow_pending() {
  while (!pending_growth_.empty()) {
    const worker::v1::NeedBlocks& need = pending_growth_.front();
    Request* request = find_running(need.request_id());
    if (request == nullptr || request->preempting) {
      pending_growth_.pop_front();
      continue;
    }
    // Never more than the request was found to fit with.
    const uint32_t most = blocks_of(request->tail_tokens() + request->tokens_left());
    const uint32_t blocks =
        std::min(need.blocks(), most - std::min(most, request->reserved_private_blocks));
    if (blocks > 0 && !make_room(blocks)) {
      Request* youngest = nullptr;
      for (auto& [id, candidate] : running_) {
        if (candidate.preempting || candidate.withdrawn) return;  // its blocks are on their way
        if (youngest == nullptr || candidate.arrival > youngest->arrival) youngest = &candidate;
      }
      youngest->preempting = true;
      metrics_->preemptions.Increment();
      worker::v1::ExecuteRequest command;
      command.mutable_preempt()->set_request_id(youngest->submit.request_id);
      send(std::move(command));
      return;
    }
    ledger_.reserve(blocks);
    request->reserved_private_blocks += blocks;
    worker::v1::ExecuteRequest command;
    command.mutable_grow()->set_request_id(need.request_id());
    command.mutable_grow()->set_blocks(blocks);
    send(std::move(command));
    pending_growth_.pop_front();
  }
}

void GroupActor::drop(const std::vector<SegmentId>& ids) {
  if (ids.empty()) return;
  // The worker takes commands in order, so the blocks are free for any later one.
  ledger_.uncache(ledger_.cached() - tree_->cached_blocks());
  worker::v1::ExecuteRequest command;
  for (const SegmentId& id : ids) {
    command.mutable_drop()->add_segment_ids(std::string(id.as_bytes()));
  }
  send(std::move(command));
}

void GroupActor::send(worker::v1::ExecuteRequest command) {
  RAG_CHECK(connected_);
  command.set_command(++commands_sent_);
  commands_.send(std::move(command));
}

GroupActor::Request* GroupActor::find_running(const std::string& request_id) {
  auto it = running_.find(request_id);
  return it == running_.end() ? nullptr : &it->second;
}

GroupActor::Request GroupActor::take_back(Running::iterator it) {
  Request request = std::move(it->second);
  running_.erase(it);
  tree_->release(request.submit.plan->chain);
  ledger_.unreserve(request.reserved_segment_blocks + request.reserved_private_blocks);
  request.reserved_segment_blocks = 0;
  request.reserved_private_blocks = 0;
  return request;
}

void GroupActor::requeue(Request request) {
  if (request.tokens_left() == 0) {  // its last token came, only the word of its end did not
    metrics_->finished.Increment();
    return end(request, absl::OkStatus(), worker::v1::FINISH_REASON_LENGTH);
  }
  request.preempting = false;
  const uint64_t arrival = request.arrival;
  queue_.emplace(arrival, std::move(request));
}

absl::Status GroupActor::no_worker() const {
  return absl::UnavailableError(absl::StrCat("no worker: ", lost_reason_));
}

void GroupActor::end(Request& request, absl::Status status, worker::v1::FinishReason reason) {
  request.submit.reply.send(GroupEnded{request.submit.choice, std::move(status), reason});
}

void GroupActor::end_withdrawn(Request& request) {
  metrics_->cancelled.Increment();
  end(request, absl::CancelledError("withdrawn"), worker::v1::FINISH_REASON_UNSPECIFIED);
}

// ---- operations

void GroupActor::handle(GetGroupStatus get, ActorContext&) {
  GroupStatus status;
  status.ready = connected_ && snapshot_complete_;
  // The old reason stands until the worker has shown what it holds: it may yet refuse the stream.
  if (!status.ready) status.not_ready_reason = lost_reason_;
  status.worker = info_;
  status.running = static_cast<uint32_t>(running_.size());
  status.waiting = static_cast<uint32_t>(queue_.size());
  v1::CacheStats& cache = status.cache;
  cache.set_policy(std::string(policy_->name()));
  cache.set_total_blocks(ledger_.total());
  cache.set_free_blocks(ledger_.free());
  cache.set_reserved_blocks(ledger_.reserved());
  cache.set_cached_blocks(ledger_.cached());
  cache.set_queried_prefix_tokens(queried_tokens_);
  cache.set_hit_prefix_tokens(hit_tokens_);
  cache.set_evicted_nodes(evicted_nodes_);
  cache.set_ledger_mismatches(ledger_mismatches_);
  if (tree_ != nullptr) {
    cache.set_nodes(tree_->node_count());
    cache.set_pinned_nodes(static_cast<uint32_t>(tree_->pinned_nodes()));
    cache.set_cached_tokens(tree_->cached_tokens());
  }
  get.reply.send(std::move(status));
}

void GroupActor::handle(ClearGroupCache clear, ActorContext& context) {
  CacheCleared cleared{};
  if (tree_ != nullptr) {
    const uint64_t tokens = tree_->cached_tokens();
    const std::vector<SegmentId> removed = tree_->clear();
    drop(removed);
    cleared = {removed.size(), tokens - tree_->cached_tokens(), tree_->node_count()};
  }
  clear.reply.send(cleared);
  dispatch(context);
}

void GroupActor::update_gauges() {
  metrics_->blocks_free.Set(ledger_.free());
  metrics_->blocks_reserved.Set(ledger_.reserved());
  metrics_->blocks_cached.Set(ledger_.cached());
  metrics_->requests_running.Set(static_cast<double>(running_.size()));
  metrics_->requests_waiting.Set(static_cast<double>(queue_.size()));
}

void GroupActor::check_invariants() const {
  RAG_CHECK(connected_ == (tree_ != nullptr));
  uint32_t reserved = 0;
  for (const auto& [id, request] : running_) {
    reserved += request.reserved_segment_blocks + request.reserved_private_blocks;
  }
  RAG_CHECK(ledger_.reserved() == reserved);
  RAG_CHECK(ledger_.free() + ledger_.reserved() + ledger_.cached() == ledger_.total());
  if (tree_ == nullptr) return;
  tree_->check_invariants();
  RAG_CHECK(ledger_.cached() == tree_->cached_blocks());
  RAG_CHECK(!running_.empty() || tree_->pinned_nodes() == 0);
}

}  // namespace ragcache::controller
