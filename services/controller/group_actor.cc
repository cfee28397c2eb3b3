#include "services/controller/group_actor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log/log.h"
#include "services/controller/schedule/load_or_compute.h"

namespace ragcache::controller {
namespace {

// Decode's share of a reservation at admission; more comes by NeedBlocks.
constexpr uint32_t kFirstGrowthTokens = 64;

}  // namespace

GroupActor::GroupActor(const Config& config, uint64_t term, std::unique_ptr<EvictionPolicy> policy,
                       std::shared_ptr<PrefillCost> prefill_cost, std::shared_ptr<Metrics> metrics)
    : config_(config),
      term_(term),
      policy_(std::move(policy)),
      prefill_cost_(std::move(prefill_cost)),
      metrics_(std::move(metrics)) {}

// ---- requests

void GroupActor::handle(Submit submit, ActorContext& context) {
  Request request;
  request.submit = std::move(submit);
  request.arrival = ++arrivals_;
  if (given_up_) return end(request, no_worker(), worker::v1::FINISH_REASON_UNSPECIFIED);
  if (queue_.size() >= config_.max_waiting) {
    return end(
        request,
        absl::ResourceExhaustedError(absl::StrCat("max_waiting: ", config_.max_waiting,
                                                  " requests wait already; try again later")),
        worker::v1::FINISH_REASON_UNSPECIFIED);
  }
  enqueue(std::move(request));
  dispatch(context);
}

void GroupActor::handle(Withdraw withdraw, ActorContext& context) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (it->second.submit.request_id != withdraw.request_id) continue;
    Request request = dequeue(it);
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
        Request refused = dequeue(it++);
        end(refused, std::move(fits), worker::v1::FINISH_REASON_UNSPECIFIED);
        continue;
      }
      const TimePoint start = context.now();
      const Admission admission = admit(request, context);
      request.scheduling += context.now() - start;
      if (admission == Admission::kDoesNotFit) break;
      if (admission == Admission::kWaitsForPrefix) {
        ++it;
        continue;
      }
      std::string id = request.submit.request_id;
      const bool is_new = running_.emplace(std::move(id), dequeue(it++)).second;
      RAG_CHECK(is_new);
    }
  }
  update_gauges();
}

GroupActor::Admission GroupActor::admit(Request& request, ActorContext& context) {
  const PromptPlan& plan = *request.submit.plan;
  const KnowledgeTree::Match match = tree_->match(plan.chain);
  if (match.pending) return Admission::kWaitsForPrefix;

  // Of all that must come to the device.
  const uint32_t segment_blocks = blocks_of(std::span(plan.chain).subspan(match.device));
  const uint32_t private_blocks =
      blocks_of(request.tail_tokens() + std::min(request.tokens_left(), kFirstGrowthTokens));

  // The cached part is held while room is made, or eviction might take it.
  const auto cached = std::span(plan.chain).first(match.cached());
  tree_->hold(cached);
  const bool fits = make_room(segment_blocks + private_blocks);
  tree_->release(cached);
  if (!fits) return Admission::kDoesNotFit;

  const uint32_t device_tokens = tokens_of(cached.first(match.device));
  const bool load = worth_loading(plan, match, request.tail_tokens());
  const uint32_t host_tokens = load ? tokens_of(cached.subspan(match.device)) : 0;
  std::optional<RequestCost> cost;
  if (!request.first_cached.has_value()) {
    request.admitted = context.now();
    request.first_cached = CachedTokens{device_tokens, host_tokens};
    const uint32_t cached_tokens = device_tokens + host_tokens;
    const uint32_t fresh = plan.prompt_tokens() - cached_tokens;
    cost = RequestCost{prefill_cost_->seconds(cached_tokens, fresh), fresh};
  }
  tree_->acquire(plan.chain, cost);
  // Asked for again: worth a copy that outlives the device.
  for (const SegmentSpec& spec : cached.first(match.device)) {
    carry_out(tree_->replicate(spec.id, true));
  }
  ledger_.reserve(segment_blocks + private_blocks);
  request.reserved_segment_blocks = segment_blocks;
  request.reserved_private_blocks = private_blocks;
  request.preempting = false;
  send(generate_command(request, match.device, load ? match.host : 0));
  return Admission::kSent;
}

bool GroupActor::worth_loading(const PromptPlan& plan, const KnowledgeTree::Match& match,
                               uint32_t tail_tokens) const {
  if (match.host == 0) return false;
  if (info_.load_bytes_per_second() == 0) return true;  // not measured
  const auto chain = std::span(plan.chain);
  const uint32_t device = tokens_of(chain.first(match.device));
  const uint32_t host = tokens_of(chain.subspan(match.device, match.host));
  const uint32_t rest = tokens_of(chain.subspan(match.cached())) + tail_tokens;
  const uint64_t blocks = blocks_of(chain.subspan(match.device, match.host));
  return controller::worth_loading({.device_tokens = device,
                                    .host_tokens = host,
                                    .new_tokens = rest,
                                    .bytes = blocks * info_.block_bytes()},
                                   static_cast<double>(info_.load_bytes_per_second()),
                                   *prefill_cost_);
}

worker::v1::ExecuteRequest GroupActor::generate_command(const Request& request, size_t on_device,
                                                        size_t to_load) const {
  const PromptPlan& plan = *request.submit.plan;
  worker::v1::ExecuteRequest command;
  worker::v1::Generate& generate = *command.mutable_generate();
  generate.set_request_id(request.submit.request_id);
  for (size_t i = 0; i < plan.chain.size(); ++i) {
    worker::v1::Segment& segment = *generate.add_segments();
    segment.set_id(std::string(plan.chain[i].id.as_bytes()));
    segment.mutable_tokens()->Add(plan.segment_tokens[i].begin(), plan.segment_tokens[i].end());
    segment.set_expected_tier(i < on_device             ? types::v1::TIER_DEVICE
                              : i < on_device + to_load ? types::v1::TIER_HOST
                                                        : types::v1::TIER_NONE);
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
  const uint32_t blocks = blocks_of(static_cast<uint32_t>(plan.tail.size()) + submit.max_tokens) +
                          blocks_of(std::span(plan.chain));
  if (blocks > ledger_.total()) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens: the prompt's ", plan.prompt_tokens(), " tokens and max_tokens ",
                     submit.max_tokens, " need ", blocks, " blocks of KV memory, the worker has ",
                     ledger_.total()));
  }
  return absl::OkStatus();
}

uint32_t GroupActor::blocks_of(std::span<const SegmentSpec> chain) const {
  uint32_t blocks = 0;  // each on a fresh one
  for (const SegmentSpec& spec : chain) blocks += blocks_of(spec.tokens);
  return blocks;
}

bool GroupActor::make_room(uint32_t blocks) {
  if (ledger_.free() >= blocks) return true;
  const uint32_t missing = blocks - ledger_.free();
  if (missing > tree_->evictable_blocks()) return false;
  carry_out(tree_->evict(missing));
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
    return end(request, absl::OkStatus(), worker::v1::FINISH_REASON_LENGTH);
  }
  request.preempting = false;
  enqueue(std::move(request));
}

void GroupActor::enqueue(Request request) {
  expect(request);
  const uint64_t arrival = request.arrival;
  queue_.emplace(arrival, std::move(request));
}

GroupActor::Request GroupActor::dequeue(Queue::iterator it) {
  Request request = std::move(it->second);
  queue_.erase(it);
  unexpect(request);
  return request;
}

void GroupActor::expect(Request& request) {
  if (tree_ == nullptr || !policy_->looks_ahead() || request.expected) return;
  tree_->expect(request.submit.plan->chain);
  request.expected = true;
}

void GroupActor::unexpect(Request& request) {
  if (std::exchange(request.expected, false)) tree_->unexpect(request.submit.plan->chain);
}

absl::Status GroupActor::no_worker() const {
  return absl::UnavailableError(absl::StrCat("no worker: ", lost_reason_));
}

void GroupActor::end(Request& request, absl::Status status, worker::v1::FinishReason reason) {
  prometheus::Counter& outcome = status.ok()                 ? metrics_->finished
                                 : absl::IsCancelled(status) ? metrics_->cancelled
                                                             : metrics_->failed;
  outcome.Increment();
  request.submit.reply.send(GroupEnded{request.submit.choice, std::move(status), reason});
}

void GroupActor::end_withdrawn(Request& request) {
  end(request, absl::CancelledError("withdrawn"), worker::v1::FINISH_REASON_UNSPECIFIED);
}

}  // namespace ragcache::controller
