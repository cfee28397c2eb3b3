// One iteration of the engine: which tokens run, the model, what came of it.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr size_t kBlockTokens = kernels::KvLayout::kBlockTokens;
// More blocks are asked for when the reservation has room for fewer tokens than this: the answer
// takes a round trip, and the request would stand still.
constexpr size_t kAskAheadTokens = 8;
constexpr uint32_t kGrowBlocks = 4;
// An iteration that no stream waits for may be longer, for longer chunks waste less; not without
// bound, for cancels and new requests wait for its end.
constexpr int kAloneFactor = 5;

int32_t slot_of(const std::vector<int32_t>& blocks, size_t token) {
  return static_cast<int32_t>(static_cast<size_t>(blocks[token / kBlockTokens]) * kBlockTokens +
                              token % kBlockTokens);
}

}  // namespace

bool Engine::step() {
  const std::vector<Planned> planned = plan();
  if (!planned.empty()) run(planned);
  if (load_due_) tell_load();
  return !planned.empty();
}

double Engine::time_limit(bool decodes) const {
  return to_seconds(limits_.max_time) * (decodes ? 1 : kAloneFactor);
}

std::vector<Engine::Planned> Engine::plan() {
  std::vector<Planned> planned;
  size_t budget = limits_.max_batch_tokens;
  IterationCost::Work work;
  const auto add = [&](Request& request, size_t wanted) {
    const size_t got = extend_slots(request, request.computed + wanted) - request.computed;
    if (got == 0) return false;  // waits for blocks
    planned.push_back({&request, got});
    budget -= got;
    work.add(got, request.computed);
    return true;
  };
  for (const auto& request : requests_) {
    if (budget > 0 && request->decoding()) add(*request, 1);
  }
  const double limit = time_limit(!planned.empty());
  bool prefills = false;
  for (const auto& request : requests_) {
    if (budget == 0) break;
    if (request->decoding()) continue;
    adopt_cached(*request);
    const size_t wanted = std::min(request->tokens.size() - request->computed, budget);
    size_t fitting = cost_.fit(work, request->computed, wanted, limit);
    // However slow the machine is, the first prompt goes on.
    if (!prefills) fitting = std::max(fitting, std::min(wanted, IterationCost::kGranule));
    if (fitting == 0) break;
    if (add(*request, fitting)) prefills = true;
  }
  return planned;
}

void Engine::adopt_cached(Request& request) {
  while (request.next_part < request.parts.size() &&
         request.slots.size() == request.parts[request.next_part].begin) {
    Request::Part& part = request.parts[request.next_part];
    if (part.pinned == nullptr) {
      Segment* cached = segments_.find(part.id);
      if (cached == nullptr) return;
      // Another request computed it while this one waited.
      segments_.pin(*cached);
      part.pinned = cached;
      request.cached_tokens += cached->token_count;
      metrics_.cached_prompt_tokens.Increment(cached->token_count);
      leave_reservation(request, part, static_cast<uint32_t>(cached->blocks.size()));
    }
    for (uint32_t i = 0; i < part.pinned->token_count; ++i) {
      request.slots.push_back(slot_of(part.pinned->blocks, i));
    }
    request.computed = part.end;
    ++request.next_part;
  }
}

void Engine::leave_reservation(Request& request, const Request::Part& part, uint32_t blocks) {
  RAG_CHECK(request.reserved >= request.taken + blocks && reserved_ >= blocks);
  request.reserved -= blocks;
  reserved_ -= blocks;
  load_due_ = true;
  tell(SegmentReady{request.id, part.id, blocks});
}

size_t Engine::extend_slots(Request& request, size_t end) {
  size_t index = request.next_part;
  while (request.slots.size() < end) {
    const size_t position = request.slots.size();
    while (index < request.parts.size() && position >= request.parts[index].end) ++index;
    Request::Part* part = index < request.parts.size() ? &request.parts[index] : nullptr;
    const size_t begin = part != nullptr ? part->begin : request.tail_begin();
    // What is cached is not computed: the chunk ends before it.
    if (part != nullptr && position == begin && segments_.find(part->id) != nullptr) break;
    std::vector<int32_t>& blocks = part != nullptr ? part->blocks : request.private_blocks;
    if ((position - begin) % kBlockTokens == 0) {
      if (request.taken == request.reserved) break;
      blocks.push_back(pool_.take());
      ++request.taken;
    }
    request.slots.push_back(slot_of(blocks, position - begin));
  }
  return std::min(end, request.slots.size());
}

void Engine::run(std::span<const Planned> planned) {
  batch_->clear();
  size_t prompt_tokens = 0;
  bool decodes = false;
  IterationCost::Work work;
  const TimePoint start = now_();
  for (const auto& [request, count] : planned) {
    if (!request->started) {
      request->started = true;
      request->start = start;
    }
    if (request->decoding()) {
      decodes = true;
    } else {
      prompt_tokens += count;
    }
    work.add(count, request->computed);
    const size_t end = request->computed + count;
    batch_->add(std::span(request->tokens).subspan(request->computed, count),
                std::span(request->slots).first(end), end == request->tokens.size());
  }
  metrics_.prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  metrics_.iteration_tokens.Observe(static_cast<double>(work.tokens));
  std::span<const float> logits = model_.forward(*batch_, pool_.memory());
  const auto vocabulary = static_cast<size_t>(model_.config().vocabulary);
  for (size_t i = 0; i < planned.size(); ++i) {
    auto [request, count] = planned[i];
    request->computed += count;
    while (request->next_part < request->parts.size() &&
           request->computed >= request->parts[request->next_part].end) {
      segment_computed(*request);
    }
    if (!batch_->wants_logits[i]) continue;
    const auto own = logits.first(vocabulary);
    logits = logits.subspan(vocabulary);
    if (advance(*request, own)) {
      release(std::find_if(requests_.begin(), requests_.end(),
                           [&](const auto& other) { return other.get() == request; }));
    } else {
      ask_for_blocks(*request);
    }
  }
  const double seconds = to_seconds(now_() - start);
  metrics_.iteration_seconds.Observe(seconds);
  if (prompt_tokens > 0) cost_.observe(work, seconds, time_limit(decodes));
}

void Engine::segment_computed(Request& request) {
  Request::Part& part = request.parts[request.next_part];
  const auto n_blocks = static_cast<uint32_t>(part.blocks.size());
  request.taken -= n_blocks;
  Segment* segment = segments_.find(part.id);
  if (segment == nullptr) {
    const bool first = request.next_part == 0;
    segment = &segments_.insert(
        {.id = part.id,
         .parent = first ? std::nullopt : std::optional(request.parts[request.next_part - 1].id),
         .depth = static_cast<uint32_t>(request.next_part),
         .token_count = static_cast<uint32_t>(part.end - part.begin),
         .token_digest = part.digest,
         .blocks = std::exchange(part.blocks, {})});
  } else {
    // Another request finished the same segment first: its copy stays, this one's goes.
    for (size_t i = part.begin; i < part.end; ++i) {
      request.slots[i] = slot_of(segment->blocks, i - part.begin);
    }
    pool_.give_back(std::exchange(part.blocks, {}));
  }
  segments_.pin(*segment);
  part.pinned = segment;
  ++request.next_part;
  leave_reservation(request, part, n_blocks);
}

bool Engine::advance(Request& request, std::span<const float> logits) {
  const uint32_t token =
      sampler_.sample(logits, request.sampling, request.tokens, request.prompt_tokens);
  if (!request.decoding()) request.first_token = now_();
  const bool stops = std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
                     request.stop_tokens.end();
  if (!stops) {
    request.tokens.push_back(token);
    metrics_.generation_tokens.Increment();
    Tokens tokens{.request_id = request.id, .ids = {token}};
    if (request.logprobs) {
      tokens.logprobs.push_back(token_logprob(logits, token, request.top_logprobs));
    }
    if (!std::exchange(request.cached_told, true)) tokens.cached_tokens = request.cached_tokens;
    tell(std::move(tokens));
  }
  if (!stops && request.generated() < request.max_tokens) return false;
  finish(request, stops ? FinishReason::kStop : FinishReason::kLength);
  return true;
}

void Engine::finish(Request& request, FinishReason reason) {
  tell(Finished{.request_id = request.id,
                .reason = reason,
                .prompt_tokens = static_cast<uint32_t>(request.prompt_tokens),
                .cached_tokens = request.cached_tokens,
                .completion_tokens = static_cast<uint32_t>(request.generated()),
                .prefill_us = to_us(request.first_token - request.start),
                .decode_us = to_us(now_() - request.first_token)});
}

void Engine::ask_for_blocks(Request& request) {
  if (request.asked) return;
  const size_t private_tokens = request.tokens.size() - request.tail_begin();
  // The last token to be generated needs no KV.
  const size_t left = request.max_tokens - request.generated() - 1;
  const uint32_t most = blocks_of(private_tokens + left);
  const size_t room = size_t{request.reserved} * kBlockTokens;
  if (request.reserved >= most || room >= private_tokens + kAskAheadTokens) return;
  request.asked = true;
  tell(NeedBlocks{request.id, std::min(kGrowBlocks, most - request.reserved)});
}

}  // namespace ragcache::worker
