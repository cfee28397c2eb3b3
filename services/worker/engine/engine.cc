#include "services/worker/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/status.h"
#include "services/worker/engine/check.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

// A page stays far below the largest message.
constexpr size_t kSnapshotPageEntries = 4096;
constexpr size_t kMaxRequests = 4096;

std::vector<bool> taken_blocks(const HostArena& arena) {
  std::vector<bool> taken(arena.blocks(), false);
  for (const HostArena::Entry& entry : arena.recovered()) {
    for (const int32_t block : entry.blocks) taken[block] = true;
  }
  return taken;
}

}  // namespace

Engine::Engine(LlamaModel& model, BlockPool pool, Limits limits, Metrics& metrics, Clock now,
               std::optional<Host> host)
    : model_(model),
      limits_(limits),
      metrics_(metrics),
      now_(std::move(now)),
      host_(std::move(host)),
      pool_(std::move(pool)),
      host_blocks_(host_.has_value() ? taken_blocks(host_->arena) : std::vector<bool>()),
      load_rate_(host_.has_value() ? host_->load_bytes_per_second : 1),
      batch_(std::make_unique<ForwardBatch>()) {
  RAG_CHECK(limits.max_batch_tokens > 0 && limits.max_batch_tokens <= model.max_tokens());
  if (!host_.has_value()) return;
  for (const HostArena::Entry& entry : host_->arena.recovered()) {
    segments_.add_to_host(
        entry.key, {.state = HostCopy::State::kReady, .blocks = entry.blocks, .announced = true});
  }
}

Engine::~Engine() = default;

void Engine::take(Command command) {
  if (const auto* open = std::get_if<OpenStream>(&command.body)) {
    handle(*open);
  } else if (const auto* close = std::get_if<CloseStream>(&command.body)) {
    handle(*close);
    return;
  } else if (stream_ != command.stream) {
    return;  // said on a stream that has ended
  } else {
    std::visit([this](auto& body) { handle(std::move(body)); }, command.body);
  }
  last_command_ = command.number;
  load_due_ = true;
}

std::vector<Event> Engine::take_events() { return std::exchange(events_, {}); }

void Engine::handle(OpenStream open) {
  release_all();
  events_.clear();
  stream_ = open.stream;
  SnapshotPage page;
  for (Segment* segment : segments_.in_chain_order()) {
    if (page.entries.size() == kSnapshotPageEntries) tell(std::exchange(page, {}));
    // A copy that is being made counts as there: whatever is ordered comes after it.
    if (segment->host.has_value()) segment->host->announced = true;
    page.entries.push_back({segment->key.id, segment->key.parent, segment->key.token_count,
                            blocks_of(segment->key.token_count), segment->on_device(),
                            segment->host.has_value()});
  }
  page.last = true;
  tell(std::move(page));
}

void Engine::handle(CloseStream close) {
  if (stream_ != close.stream) return;
  release_all();
  events_.clear();
  stream_.reset();
  load_due_ = false;
}

absl::Status Engine::check_state(const Generate& command) const {
  const auto invalid = [](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(text...));
  };
  if (command.reserved_blocks > free_blocks()) {
    return invalid("reserved_blocks is ", command.reserved_blocks, ", ", free_blocks(),
                   " are free");
  }
  if (requests_.size() >= kMaxRequests) {
    return invalid(requests_.size(), " requests are running, at most ", kMaxRequests);
  }
  for (const auto& request : requests_) {
    if (request->id == command.request_id) return invalid("request_id is running already");
  }
  return absl::OkStatus();
}

void Engine::handle(Generate command) {
  const ModelConfig& model = model_.config();
  absl::Status valid = check(command, static_cast<uint64_t>(model.vocabulary),
                             static_cast<uint64_t>(model.context_tokens));
  if (valid.ok()) valid = check_state(command);
  if (!valid.ok()) {
    return fail(command.request_id, Failure::kInvalid, std::string(valid.message()));
  }
  auto request = std::make_unique<Request>();
  request->id = std::move(command.request_id);
  request->sampling = std::move(command.sampling);
  request->max_tokens = command.max_tokens;
  request->stop_tokens = std::move(command.stop_tokens);
  request->logprobs = command.logprobs;
  request->top_logprobs = command.top_logprobs;
  std::vector<SegmentId> missing;
  uint32_t to_compute = blocks_of(command.tail.size());
  for (size_t i = 0; i < command.segments.size(); ++i) {
    const SegmentSpec& spec = command.segments[i];
    Request::Part part{.id = spec.id,
                       .begin = request->tokens.size(),
                       .end = request->tokens.size() + spec.tokens.size(),
                       .digest = digest_of_tokens(spec.tokens)};
    if (i > 0 && SegmentId::derive(command.segments[i - 1].id, part.digest) != spec.id) {
      return fail(request->id, Failure::kInvalid,
                  absl::StrCat("segments[", i, "].id does not name its tokens and parent"));
    }
    const Segment* known = segments_.find(spec.id);
    if (known != nullptr && !known->holds(spec.tokens, part.digest)) {
      return fail(request->id, Failure::kInvalid,
                  absl::StrCat("segments[", i, "].tokens differ from what its id holds here"));
    }
    const bool on_device = known != nullptr && known->on_device();
    if (!on_device || spec.expected != Tier::kDevice) to_compute += blocks_of(spec.tokens.size());
    if (!on_device && spec.expected != Tier::kNone) {
      if (known != nullptr) {
        part.state = Request::Part::State::kToLoad;
      } else {
        missing.push_back(spec.id);
      }
    }
    request->tokens.insert(request->tokens.end(), spec.tokens.begin(), spec.tokens.end());
    request->parts.push_back(std::move(part));
  }
  request->tokens.insert(request->tokens.end(), command.tail.begin(), command.tail.end());
  request->given_tokens = request->tokens.size();
  request->prompt_tokens = request->given_tokens - command.answer_tokens;
  if (to_compute > command.reserved_blocks) {
    const std::string message = absl::StrCat(
        "the prompt needs ", to_compute, " blocks, reserved_blocks is ", command.reserved_blocks);
    const Failure code = missing.empty() ? Failure::kInvalid : Failure::kMissing;
    return fail(request->id, code, message, std::move(missing));
  }

  request->reserved = command.reserved_blocks;
  reserved_ += command.reserved_blocks;
  for (size_t i = 0; i < request->parts.size(); ++i) {
    Request::Part& part = request->parts[i];
    Segment* cached = segments_.find_on_device(part.id);
    if (cached == nullptr) continue;
    pin(*request, part, *cached);
    // Reserved for, yet here already: the reservation shrinks as if it had just been computed.
    if (command.segments[i].expected != Tier::kDevice) {
      leave_reservation(*request, part, static_cast<uint32_t>(cached->blocks.size()));
    }
  }
  adopt_cached(*request);
  submit_load(*request);
  requests_.push_back(std::move(request));
}

void Engine::handle(const Cancel& cancel) {
  auto it = find(cancel.request_id);
  if (it == requests_.end()) return;  // it ended while the command was on its way
  release(it);
  tell(Cancelled{cancel.request_id});
}

void Engine::handle(const Preempt& preempt) {
  auto it = find(preempt.request_id);
  if (it == requests_.end()) return;
  release(it);
  fail(preempt.request_id, Failure::kPreempted, "preempted");
}

void Engine::handle(const Grow& grow) {
  auto it = find(grow.request_id);
  if (it == requests_.end()) return;
  Request& request = **it;
  request.asked = false;
  if (grow.blocks > free_blocks()) {
    const std::string message =
        absl::StrCat("grow by ", grow.blocks, " blocks, ", free_blocks(), " are free");
    release(it);
    return fail(grow.request_id, Failure::kInvalid, message);
  }
  request.reserved += grow.blocks;
  reserved_ += grow.blocks;
}

void Engine::fail(const std::string& request_id, Failure code, std::string message,
                  std::vector<SegmentId> missing) {
  tell(Failed{request_id, code, std::move(message), std::move(missing)});
}

void Engine::tell(decltype(Event::body) body) {
  if (stream_.has_value()) events_.push_back({*stream_, std::move(body)});
}

void Engine::tell_load() {
  load_due_ = false;
  const uint32_t cached = segments_.device_blocks();
  tell(Load{.last_command = last_command_,
            .total_blocks = pool_.total(),
            .free_blocks = free_blocks(),
            .reserved_blocks = reserved_,
            .cached_blocks = cached,
            .pinned_segments = segments_.pinned(),
            .running_requests = static_cast<uint32_t>(requests_.size()),
            .host_total_blocks = host_blocks_.total(),
            .host_free_blocks = host_blocks_.free(),
            .host_cached_blocks = segments_.host_blocks(),
            .saved_bytes = saved_bytes_,
            .loaded_bytes = loaded_bytes_,
            .damaged_segments = damaged_segments_});
  metrics_.blocks_free.Set(free_blocks());
  metrics_.blocks_reserved.Set(reserved_);
  metrics_.blocks_cached.Set(cached);
  metrics_.host_blocks_free.Set(host_blocks_.free());
  metrics_.host_blocks_cached.Set(segments_.host_blocks());
  metrics_.requests_running.Set(static_cast<double>(requests_.size()));
}

Engine::Requests::iterator Engine::find(const std::string& request_id) {
  return std::find_if(requests_.begin(), requests_.end(),
                      [&](const auto& request) { return request->id == request_id; });
}

void Engine::release(Requests::iterator it) {
  Request& request = **it;
  abandon_load(request);
  for (const Request::Part& part : request.parts) {
    if (part.pinned != nullptr) segments_.unpin(*part.pinned);
    pool_.give_back(part.blocks);
  }
  pool_.give_back(request.private_blocks);
  RAG_CHECK(reserved_ >= request.reserved);
  reserved_ -= request.reserved;
  requests_.erase(it);
  load_due_ = true;
}

void Engine::release_all() {
  while (!requests_.empty()) release(requests_.end() - 1);
}

uint32_t Engine::free_blocks() const {
  RAG_CHECK(reserved_ + segments_.device_blocks() <= pool_.total());
  return pool_.total() - reserved_ - segments_.device_blocks();
}

void Engine::check_invariants() const {
  uint32_t reserved = 0, taken = 0, leaving = 0;
  for (const auto& request : requests_) {
    size_t held = request->private_blocks.size();
    bool loads = false;
    for (const Request::Part& part : request->parts) {
      held += part.blocks.size();
      loads = loads || part.state == Request::Part::State::kLoading;
      RAG_CHECK((part.state == Request::Part::State::kCached) == (part.pinned != nullptr));
      RAG_CHECK(part.pinned == nullptr || part.blocks.empty());
    }
    RAG_CHECK(loads == (request->load != nullptr));
    RAG_CHECK(request->taken == held && request->taken <= request->reserved);
    RAG_CHECK(request->computed <= request->slots.size());
    reserved += request->reserved;
    taken += request->taken;
  }
  for (const InFlight& transfer : in_flight_) {
    leaving += static_cast<uint32_t>(transfer.blocks.size());
  }
  RAG_CHECK(reserved == reserved_);
  RAG_CHECK(pool_.free() + taken + leaving + segments_.device_blocks() == pool_.total());
  RAG_CHECK(free_blocks() + reserved_ + segments_.device_blocks() == pool_.total());
  RAG_CHECK(host_blocks_.free() + segments_.host_blocks() == host_blocks_.total());
}

}  // namespace ragcache::worker
