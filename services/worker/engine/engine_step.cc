// One iteration of the engine: which tokens run, the model, what came of it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
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
  collect_transfers();
  const std::vector<Planned> planned = plan();
  if (!planned.empty()) run(planned);
  if (load_due_) tell_load();
  return !planned.empty();
}

double Engine::time_limit(bool decodes) const {
  return to_seconds(limits_.max_time) * (decodes ? 1 : kAloneFactor);
}

// Chooses what one iteration computes.
class Engine::Planner {
 public:
  explicit Planner(Engine& engine) : engine_(engine), budget_(engine.limits_.max_batch_tokens) {}

  bool full() const { return budget_ == 0; }
  bool empty() const { return planned_.empty(); }
  double seconds() const { return engine_.cost_.predict(work_); }
  std::vector<Planned> take() { return std::move(planned_); }

  void add_decode(Request& request) { add(request, 1); }
  void decodes_are_in() { limit_ = engine_.time_limit(!planned_.empty()); }
  // The next piece of its prompt. False: not even a small one fits.
  bool add_prefill(Request& request) {
    const size_t wanted = std::min(request.tokens.size() - request.computed, budget_);
    size_t fitting = engine_.cost_.fit(work_, request.computed, wanted, limit_);
    // However slow the machine is, the first prompt goes on.
    if (!prefills_) fitting = std::max(fitting, std::min(wanted, IterationCost::kGranule));
    if (fitting == 0) return false;
    if (add(request, fitting)) prefills_ = true;
    return true;
  }

 private:
  bool add(Request& request, size_t wanted) {
    const size_t got = engine_.extend_slots(request, request.computed + wanted) - request.computed;
    // Waits for blocks.
    if (got == 0) return false;
    planned_.push_back({&request, request.computed, got});
    budget_ -= std::min(budget_, got);
    work_.add(got, request.computed);
    return true;
  }

  Engine& engine_;
  std::vector<Planned> planned_;
  size_t budget_;
  IterationCost::Work work_;
  double limit_ = 0;
  bool prefills_ = false;
};

std::vector<Engine::Planned> Engine::plan() {
  Planner planner(*this);
  for (const auto& request : requests_) {
    if (!planner.full() && request->decoding()) planner.add_decode(*request);
  }
  planner.decodes_are_in();
  std::vector<Request*> loading;
  for (const auto& request : requests_) {
    if (request->decoding()) continue;
    adopt_cached(*request);
    submit_load(*request);
    if (waits_for_load(*request)) {
      loading.push_back(request.get());
    } else if (planner.full() || !planner.add_prefill(*request)) {
      break;
    }
  }
  // A request whose prefix is still being copied joins where nobody waits for that.
  for (Request* request : loading) {
    if (planner.full()) break;
    if (request->load == nullptr) continue;  // there are no blocks for it yet
    if (!planner.empty() && !hides(*request->load, planner.seconds())) continue;
    join_load(*request);
    if (!waits_for_load(*request) && !planner.add_prefill(*request)) break;
  }
  return planner.take();
}

void Engine::pin(Request& request, Request::Part& part, Segment& segment) {
  segments_.pin(segment);
  part.pinned = &segment;
  part.state = Request::Part::State::kCached;
  request.cached_device_tokens += segment.key.token_count;
  metrics_.cached_device_tokens.Increment(segment.key.token_count);
}

void Engine::adopt_cached(Request& request) {
  while (request.next_part < request.parts.size() &&
         request.slots.size() == request.parts[request.next_part].begin) {
    Request::Part& part = request.parts[request.next_part];
    if (part.state == Request::Part::State::kLoading) return;
    if (part.pinned == nullptr) {
      Segment* cached = segments_.find_on_device(part.id);
      if (cached == nullptr) return;
      // Another request computed it while this one waited. Blocks are there after a failed load.
      request.taken -= static_cast<uint32_t>(part.blocks.size());
      pool_.give_back(std::exchange(part.blocks, {}));
      pin(request, part, *cached);
      leave_reservation(request, part, static_cast<uint32_t>(cached->blocks.size()));
    }
    move_over(request, part.pinned->blocks);
  }
}

void Engine::move_over(Request& request, const std::vector<int32_t>& blocks) {
  const Request::Part& part = request.parts[request.next_part++];
  for (size_t i = part.begin; i < part.end; ++i) {
    request.slots.push_back(slot_of(blocks, i - part.begin));
  }
  request.computed = part.end;
}

void Engine::join_load(Request& request) {
  while (request.next_part < request.parts.size() &&
         request.parts[request.next_part].state == Request::Part::State::kLoading) {
    move_over(request, request.parts[request.next_part].blocks);
    adopt_cached(request);
  }
}

void Engine::leave_reservation(Request& request, const Request::Part& part, uint32_t blocks,
                               bool loaded) {
  RAG_CHECK(request.reserved >= request.taken + blocks && reserved_ >= blocks);
  request.reserved -= blocks;
  reserved_ -= blocks;
  load_due_ = true;
  tell(SegmentReady{request.id, part.id, blocks, loaded});
}

size_t Engine::extend_slots(Request& request, size_t end) {
  size_t index = request.next_part;
  while (request.slots.size() < end) {
    const size_t position = request.slots.size();
    while (index < request.parts.size() && position >= request.parts[index].end) ++index;
    Request::Part* part = index < request.parts.size() ? &request.parts[index] : nullptr;
    const size_t begin = part != nullptr ? part->begin : request.tail_begin();
    // What is cached or will be loaded is not computed: the chunk ends before it.
    if (part != nullptr && position == begin &&
        (part->state != Request::Part::State::kToCompute ||
         segments_.find_on_device(part->id) != nullptr)) {
      break;
    }
    std::vector<int32_t>& blocks = part != nullptr ? part->blocks : request.private_blocks;
    // Some are there already where a load failed.
    if ((position - begin) / kBlockTokens == blocks.size()) {
      if (request.taken == request.reserved || pool_.free() == 0) break;
      blocks.push_back(pool_.take());
      ++request.taken;
    }
    request.slots.push_back(slot_of(blocks, position - begin));
  }
  return std::min(end, request.slots.size());
}

std::span<const float> Engine::forward(std::span<Request* const> loading, double& stalled) {
  if (loading.empty()) return model_.forward(*batch_, pool_.memory());
  bool stuck = false;
  const auto wait_for_layer = [&](int64_t layer) {
    const TimePoint reached = now_();
    for (Request* request : loading) {
      request->layers_reached.push_back(reached);
      stuck = stuck || !host_->transfers.wait(*request->load, layer);
      request->layers_read.push_back(now_());
    }
    stalled += to_seconds(now_() - reached);
  };
  const std::span<const float> logits = model_.forward(*batch_, pool_.memory(), wait_for_layer);
  const TimePoint computed = now_();
  for (Request* request : loading) {
    if (!stuck) host_->transfers.wait_for_end(*request->load);
  }
  stalled += to_seconds(now_() - computed);
  metrics_.load_stall_seconds.Observe(stalled);
  return logits;
}

void Engine::run(std::span<const Planned> planned) {
  batch_->clear();
  size_t prompt_tokens = 0;
  bool decodes = false;
  IterationCost::Work work;
  std::vector<Request*> loading;
  const TimePoint start = now_();
  for (const auto& [request, begin, count] : planned) {
    if (!request->started) {
      request->started = true;
      request->start = start;
    }
    if (request->decoding()) {
      decodes = true;
    } else {
      prompt_tokens += count;
    }
    if (request->load != nullptr) loading.push_back(request);
    work.add(count, begin);
    const size_t end = begin + count;
    batch_->add(std::span(request->tokens).subspan(begin, count),
                std::span(request->slots).first(end), end == request->tokens.size());
  }
  metrics_.prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  metrics_.iteration_tokens.Observe(static_cast<double>(work.tokens));
  double stalled = 0;
  std::span<const float> logits = forward(loading, stalled);
  collect_transfers();
  const auto vocabulary = static_cast<size_t>(model_.config().vocabulary);
  size_t row = 0;
  for (const auto& [request, begin, count] : planned) {
    const bool has_logits = begin + count == request->tokens.size();
    const auto own = logits.subspan(row, has_logits ? vocabulary : 0);
    row += own.size();
    if (request->load != nullptr) {
      const std::string id = request->id;
      release(find(id));
      fail(id, Failure::kInternal, "cached KV was not loaded in time");
      continue;
    }
    if (request->computed != begin) continue;  // its load failed: this was for nothing
    request->computed += count;
    while (request->next_part < request->parts.size() &&
           request->computed >= request->parts[request->next_part].end) {
      cache_part(*request, request->next_part++, false);
    }
    if (!has_logits) continue;
    if (advance(*request, own)) {
      release(std::find_if(requests_.begin(), requests_.end(),
                           [&](const auto& other) { return other.get() == request; }));
    } else {
      ask_for_blocks(*request);
    }
  }
  const double seconds = to_seconds(now_() - start) - stalled;
  metrics_.iteration_seconds.Observe(seconds + stalled);
  if (prompt_tokens > 0) cost_.observe(work, seconds, time_limit(decodes));
}

void Engine::cache_part(Request& request, size_t index, bool loaded) {
  Request::Part& part = request.parts[index];
  const auto n_blocks = static_cast<uint32_t>(part.blocks.size());
  request.taken -= n_blocks;
  Segment* segment = segments_.find_on_device(part.id);
  if (segment == nullptr) {
    segment = &segments_.add_to_device(
        {.id = part.id,
         .parent = index == 0 ? std::nullopt : std::optional(request.parts[index - 1].id),
         .depth = static_cast<uint32_t>(index),
         .token_count = static_cast<uint32_t>(part.end - part.begin),
         .token_digest = part.digest},
        std::exchange(part.blocks, {}));
  } else {
    // Another request finished the same segment first: its copy stays, this one's goes.
    if (request.slots.size() >= part.end) {
      for (size_t i = part.begin; i < part.end; ++i) {
        request.slots[i] = slot_of(segment->blocks, i - part.begin);
      }
    }
    pool_.give_back(std::exchange(part.blocks, {}));
  }
  segments_.pin(*segment);
  part.pinned = segment;
  part.state = Request::Part::State::kCached;
  leave_reservation(request, part, n_blocks, loaded);
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
    if (!std::exchange(request.cached_told, true)) {
      tokens.cached_device_tokens = request.cached_device_tokens;
      tokens.cached_host_tokens = request.cached_host_tokens;
    }
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
                .cached_device_tokens = request.cached_device_tokens,
                .completion_tokens = static_cast<uint32_t>(request.generated()),
                .prefill_us = to_us(request.first_token - request.start),
                .decode_us = to_us(now_() - request.first_token),
                .cached_host_tokens = request.cached_host_tokens,
                .load_us = request.load_us});
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

absl::StatusOr<double> Engine::time_prefill(uint32_t cached_tokens, uint32_t new_tokens) {
  RAG_CHECK(requests_.empty() && new_tokens > 0);
  RAG_CHECK(cached_tokens + new_tokens <= static_cast<uint64_t>(model_.config().context_tokens));
  const uint32_t own = blocks_of(new_tokens);
  if (own > pool_.free()) {
    return absl::ResourceExhaustedError(absl::StrCat("a prefill of ", new_tokens, " tokens wants ",
                                                     own, " blocks, ", pool_.free(), " are free"));
  }
  // Where too few are free, cached tokens share blocks.
  const uint32_t context = std::min(blocks_of(cached_tokens), pool_.free() - own);
  std::vector<int32_t> blocks = pool_.take(own + context);
  std::vector<int32_t> slots;
  for (uint32_t i = 0; i < cached_tokens; ++i) {
    const size_t block = i / kBlockTokens % (context > 0 ? context : own);
    slots.push_back(
        slot_of(blocks, (context > 0 ? own + block : block) * kBlockTokens + i % kBlockTokens));
  }
  for (uint32_t i = 0; i < new_tokens; ++i) slots.push_back(slot_of(blocks, i));
  // Memory that was never written reads faster than any other.
  const auto block_bytes = static_cast<size_t>(model_.kv_layout().block_bytes());
  for (const int32_t block : blocks) {
    std::memset(static_cast<uint8_t*>(pool_.memory()) + block * block_bytes, 0, block_bytes);
  }
  const std::vector<uint32_t> tokens(new_tokens, 0);
  const TimePoint start = now_();
  for (uint32_t done = 0; done < new_tokens;) {
    const uint32_t count = std::min(limits_.max_batch_tokens, new_tokens - done);
    batch_->clear();
    batch_->add(std::span(tokens).first(count),
                std::span(slots).first(cached_tokens + done + count), done + count == new_tokens);
    model_.forward(*batch_, pool_.memory());
    done += count;
  }
  const double seconds = to_seconds(now_() - start);
  pool_.give_back(blocks);
  return seconds;
}

}  // namespace ragcache::worker
