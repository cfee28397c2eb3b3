#include "tests/fakes/fake_worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"

namespace ragcache::fakes {

using worker::v1::ExecuteResponse;

FakeModel::Token FakeModel::next(const std::vector<uint32_t>& context, size_t answer_begin,
                                 uint64_t seed) {
  RAG_CHECK(answer_begin <= context.size());
  std::vector<uint32_t> all = context;
  all.push_back(static_cast<uint32_t>(answer_begin));
  all.push_back(static_cast<uint32_t>(seed));
  const Digest digest = digest_of_tokens(all);
  const uint32_t id = digest[0] % 64 == 0 ? kEnd : 3 + digest[1] % 6;
  return {id, -static_cast<float>(digest[2]) / 16};
}

std::vector<FakeModel::Token> FakeModel::answer(std::vector<uint32_t> prompt, uint64_t seed,
                                                uint32_t max_tokens,
                                                const std::vector<uint32_t>& stop_tokens) {
  const size_t begin = prompt.size();
  std::vector<Token> tokens;
  while (tokens.size() < max_tokens) {
    const Token token = next(prompt, begin, seed);
    if (std::find(stop_tokens.begin(), stop_tokens.end(), token.id) != stop_tokens.end()) break;
    tokens.push_back(token);
    prompt.push_back(token.id);
  }
  return tokens;
}

FakeWorker::FakeWorker(uint64_t connection, std::shared_ptr<Memory> memory, Group group,
                       ActorRef<FakeWorker> self)
    : connection_(connection), memory_(std::move(memory)), group_(std::move(group)), self_(self) {}

void FakeWorker::handle(Connect, ActorContext& context) {
  if (memory_->stream > connection_) return context.stop();  // overtaken by a newer one
  memory_->stream = connection_;
  // A new stream ends what an older one had running; copies that were under way are completed.
  for (auto& [id, segment] : memory_->device) segment.pins = 0;
  for (auto& [id, segment] : memory_->host) segment.save = 0;
  worker::v1::GetInfoResponse info;
  info.set_block_tokens(kBlockTokens);
  info.set_block_bytes(kBlockBytes);
  info.set_total_blocks(memory_->device_blocks);
  info.set_host_blocks(memory_->host_blocks);
  info.set_context_tokens(kContextTokens);
  info.set_load_bytes_per_second(memory_->load_bytes_per_second);
  group_.send(controller::WorkerConnected{connection_, std::move(info), self_});
}

void FakeWorker::handle(Die, ActorContext& context) {
  if (is_current()) {
    memory_->device.clear();
    std::erase_if(memory_->host, [](const auto& entry) { return entry.second.save != 0; });
  }
  group_.send(controller::WorkerLost{connection_, "killed"});
  context.stop();
}

void FakeWorker::handle(Break, ActorContext& context) {
  group_.send(controller::WorkerLost{connection_, "the stream broke"});
  context.stop();
}

void FakeWorker::handle(Refuse, ActorContext&) { refuses_ = true; }

void FakeWorker::tell_snapshot() {
  ExecuteResponse event;
  worker::v1::Snapshot& snapshot = *event.mutable_snapshot();
  std::vector<std::pair<std::string, const Segment*>> left;
  for (const auto& [id, segment] : memory_->device) left.emplace_back(id, &segment);
  for (const auto& [id, segment] : memory_->host) {
    if (!memory_->device.contains(id)) left.emplace_back(id, &segment);
  }
  // Parents before children, also below an orphan.
  std::set<std::string> untold;
  for (const auto& [id, segment] : left) untold.insert(id);
  while (!left.empty()) {
    std::vector<std::pair<std::string, const Segment*>> later;
    for (const auto& [id, segment] : left) {
      if (untold.contains(segment->parent)) {
        later.emplace_back(id, segment);
        continue;
      }
      untold.erase(id);
      worker::v1::Snapshot::Entry& entry = *snapshot.add_entries();
      entry.set_segment_id(id);
      entry.set_parent_id(segment->parent);
      entry.set_token_count(static_cast<uint32_t>(segment->tokens.size()));
      entry.set_blocks(blocks_of(segment->tokens.size()));
      entry.set_on_device(memory_->device.contains(id));
      entry.set_on_host(memory_->host.contains(id));
    }
    left = std::move(later);
  }
  snapshot.set_last_page(true);
  tell(std::move(event));
}

void FakeWorker::handle(worker::v1::ExecuteRequest command, ActorContext& context) {
  if (!is_current()) return;
  RAG_CHECK(command.command() == ++last_command_);
  using Body = worker::v1::ExecuteRequest::BodyCase;
  switch (command.body_case()) {
    case Body::kOpen:
      RAG_CHECK(last_command_ == 1);
      if (refuses_) {
        group_.send(controller::WorkerLost{connection_, kRefusal});
        return context.stop();
      }
      tell_snapshot();
      break;
    case Body::kGenerate:
      generate(command.generate());
      break;
    case Body::kReplicate:
      replicate(command.replicate());
      break;
    case Body::kCancel: {
      const std::string& id = command.cancel().request_id();
      if (!running_.contains(id)) break;  // it ended while the command was on its way
      end(id);
      ExecuteResponse event;
      event.mutable_cancelled()->set_request_id(id);
      tell(std::move(event));
      break;
    }
    case Body::kGrow: {
      auto it = running_.find(command.grow().request_id());
      if (it == running_.end()) break;
      RAG_CHECK(it->second.asked && command.grow().blocks() > 0);
      it->second.private_blocks += command.grow().blocks();
      it->second.asked = false;
      break;
    }
    case Body::kPreempt: {
      const std::string& id = command.preempt().request_id();
      if (!running_.contains(id)) break;
      end(id);
      ExecuteResponse event;
      event.mutable_failed()->set_request_id(id);
      event.mutable_failed()->set_code(worker::v1::FAILURE_CODE_PREEMPTED);
      tell(std::move(event));
      break;
    }
    case Body::kDrop:
      drop(command.drop());
      break;
    case Body::BODY_NOT_SET:
      RAG_CHECK(false);
  }
  // The controller never promises more than there is.
  RAG_CHECK(reserved_blocks() + blocks_of(memory_->device) <= memory_->device_blocks);
  RAG_CHECK(blocks_of(memory_->host) <= memory_->host_blocks);
  tell_load();
  go_on();
}

void FakeWorker::go_on() {
  if (stepping_ || (running_.empty() && saving_.empty())) return;
  stepping_ = true;
  self_.send_after(std::chrono::microseconds(100), Step{});
}

void FakeWorker::replicate(const worker::v1::Replicate& command) {
  for (const std::string& id : command.segment_ids()) {
    auto it = memory_->device.find(id);
    RAG_CHECK(it != memory_->device.end() || memory_->forgetful);
    RAG_CHECK(!memory_->host.contains(id));  // swapped out only once
    if (it == memory_->device.end()) continue;
    const Segment& from = it->second;
    RAG_CHECK(from.parent.empty() || memory_->host.contains(from.parent) || memory_->forgetful);
    const uint64_t number = ++memory_->saves;
    memory_->host[id] = {.parent = from.parent, .tokens = from.tokens, .save = number};
    saving_.push_back({id, number});
  }
}

void FakeWorker::drop(const worker::v1::Drop& command) {
  RAG_CHECK(command.tier() == types::v1::TIER_DEVICE || command.tier() == types::v1::TIER_HOST);
  const bool device = command.tier() == types::v1::TIER_DEVICE;
  auto& segments = device ? memory_->device : memory_->host;
  for (const std::string& id : command.segment_ids()) {
    auto it = segments.find(id);
    if (it == segments.end()) continue;
    RAG_CHECK(it->second.pins == 0);
    if (!memory_->forgetful) check_leaf(segments, id);
    segments.erase(it);
  }
}

void FakeWorker::check_leaf(const std::map<std::string, Segment>& segments, const std::string& id) {
  for (const auto& [other, segment] : segments) RAG_CHECK(segment.parent != id);
}

void FakeWorker::generate(const worker::v1::Generate& command) {
  RAG_CHECK(!running_.contains(command.request_id()));
  RAG_CHECK(command.max_tokens() > 0);
  RAG_CHECK(command.answer_tokens() < static_cast<uint32_t>(command.tail_tokens_size()));
  Running request;
  request.generate = command;
  std::vector<std::string> missing;
  uint32_t missing_blocks = 0;
  for (int i = 0; i < command.segments_size(); ++i) {
    const worker::v1::Segment& segment = command.segments(i);
    if (i > 0) {
      const std::vector<uint32_t> tokens(segment.tokens().begin(), segment.tokens().end());
      RAG_CHECK(SegmentId::derive(*SegmentId::parse(command.segments(i - 1).id()),
                                  digest_of_tokens(tokens))
                    .as_bytes() == segment.id());
    }
    const bool expected = segment.expected_tier() == types::v1::TIER_DEVICE;
    const bool on_host = segment.expected_tier() == types::v1::TIER_HOST;
    auto it = memory_->device.find(segment.id());
    RAG_CHECK(expected || it == memory_->device.end() || !missing.empty());
    RAG_CHECK(!on_host || memory_->forgetful || memory_->host.contains(segment.id()));
    memory_->loads += on_host ? 1 : 0;
    request.to_load.push_back(on_host && memory_->host.contains(segment.id()));
    if (expected && it == memory_->device.end()) {
      missing.push_back(segment.id());
      missing_blocks += blocks_of(static_cast<size_t>(segment.tokens_size()));
    } else if (expected) {
      RAG_CHECK(std::equal(segment.tokens().begin(), segment.tokens().end(),
                           it->second.tokens.begin(), it->second.tokens.end()));
      RAG_CHECK(missing.empty());  // only leaves are ever forgotten
      ++request.next_segment;
      request.cached_tokens += static_cast<uint32_t>(segment.tokens_size());
    } else {
      request.segment_blocks += blocks_of(static_cast<size_t>(segment.tokens_size()));
    }
  }
  // What is gone is computed again if the reservation has room for it.
  const uint32_t needed = request.segment_blocks + missing_blocks +
                          blocks_of(static_cast<size_t>(command.tail_tokens_size()) + 1);
  if (needed > command.reserved_blocks()) {
    RAG_CHECK(!missing.empty());
    ExecuteResponse event;
    event.mutable_failed()->set_request_id(command.request_id());
    event.mutable_failed()->set_code(worker::v1::FAILURE_CODE_MISSING);
    for (std::string& id : missing) event.mutable_failed()->add_missing_segment_ids(std::move(id));
    tell(std::move(event));
    return;
  }
  request.segment_blocks += missing_blocks;
  request.private_blocks = command.reserved_blocks() - request.segment_blocks;
  for (size_t i = 0; i < request.next_segment; ++i) {
    const worker::v1::Segment& segment = command.segments(static_cast<int>(i));
    ++memory_->device.at(segment.id()).pins;
    request.pinned.push_back(segment.id());
    request.context.insert(request.context.end(), segment.tokens().begin(), segment.tokens().end());
  }
  running_.emplace(command.request_id(), std::move(request));
}

void FakeWorker::handle(Step, ActorContext& context) {
  stepping_ = false;
  if (!is_current()) return;
  const size_t choices = running_.size() + saving_.size();
  if (choices == 0) return;
  const size_t choice = context.random() % choices;
  if (choice < running_.size()) {
    advance(std::next(running_.begin(), static_cast<std::ptrdiff_t>(choice))->second);
  } else {
    finish_save(choice - running_.size());
  }
  tell_load();
  go_on();
}

void FakeWorker::finish_save(size_t index) {
  const Save save = saving_[index];
  saving_.erase(saving_.begin() + static_cast<std::ptrdiff_t>(index));
  auto it = memory_->host.find(save.id);
  if (it == memory_->host.end() || it->second.save != save.number) return;  // dropped meanwhile
  it->second.save = 0;
  ExecuteResponse event;
  event.mutable_segment_saved()->set_segment_id(save.id);
  tell(std::move(event));
}

void FakeWorker::finish_segment(Running& request) {
  const worker::v1::Segment& segment =
      request.generate.segments(static_cast<int>(request.next_segment));
  bool loaded = request.to_load[request.next_segment];
  if (loaded && std::exchange(damage_, false)) {
    loaded = false;
    if (memory_->host.erase(segment.id()) > 0) {
      ExecuteResponse event;
      event.mutable_segment_lost()->set_segment_id(segment.id());
      event.mutable_segment_lost()->set_reason("checksum");
      tell(std::move(event));
    }
  }
  const uint32_t blocks = blocks_of(static_cast<size_t>(segment.tokens_size()));
  // Two requests compute one segment only if both expected it and it was gone.
  Segment& held = memory_->device[segment.id()];
  RAG_CHECK(held.tokens.empty() || segment.expected_tier() == types::v1::TIER_DEVICE);
  held.parent = request.next_segment == 0
                    ? ""
                    : request.generate.segments(static_cast<int>(request.next_segment) - 1).id();
  held.tokens.assign(segment.tokens().begin(), segment.tokens().end());
  ++held.pins;
  request.pinned.push_back(segment.id());
  request.segment_blocks -= blocks;
  request.context.insert(request.context.end(), segment.tokens().begin(), segment.tokens().end());
  ++request.next_segment;
  if (loaded) request.loaded_tokens += static_cast<uint32_t>(segment.tokens_size());
  ExecuteResponse event;
  event.mutable_segment_ready()->set_request_id(request.generate.request_id());
  event.mutable_segment_ready()->set_segment_id(segment.id());
  event.mutable_segment_ready()->set_blocks(blocks);
  event.mutable_segment_ready()->set_loaded(loaded);
  tell(std::move(event));
}

void FakeWorker::advance(Running& request) {
  const std::string id = request.generate.request_id();
  if (request.next_segment < static_cast<size_t>(request.generate.segments_size())) {
    return finish_segment(request);
  }
  if (!request.first_told) {
    request.context.insert(request.context.end(), request.generate.tail_tokens().begin(),
                           request.generate.tail_tokens().end());
  }
  const size_t held =
      static_cast<size_t>(request.generate.tail_tokens_size()) + request.generated + 1;
  if (blocks_of(held) > request.private_blocks) {
    if (!request.asked) {
      request.asked = true;
      ExecuteResponse event;
      event.mutable_need_blocks()->set_request_id(id);
      event.mutable_need_blocks()->set_blocks(2);
      tell(std::move(event));
    }
    return;
  }
  const worker::v1::Generate& generate = request.generate;
  const size_t answer_begin = request.context.size() - request.generated - generate.answer_tokens();
  const auto [token, logprob] =
      FakeModel::next(request.context, answer_begin, generate.sampling().seed());
  const bool stops = std::find(generate.stop_tokens().begin(), generate.stop_tokens().end(),
                               token) != generate.stop_tokens().end();
  if (!stops) {
    ExecuteResponse event;
    worker::v1::Tokens& tokens = *event.mutable_tokens();
    tokens.set_request_id(id);
    tokens.add_ids(token);
    if (!request.first_told) {
      tokens.set_cached_device_tokens(request.cached_tokens);
      tokens.set_cached_host_tokens(request.loaded_tokens);
    }
    if (generate.logprobs()) {
      worker::v1::TokenLogprob& told = *tokens.add_logprobs();
      told.set_logprob(logprob);
      for (uint32_t top = 0; top < generate.top_logprobs(); ++top) {
        told.add_top_ids(top);
        told.add_top_logprobs(logprob);
      }
    }
    tell(std::move(event));
    request.context.push_back(token);
    ++request.generated;
  }
  request.first_told = true;
  if (stops || request.generated == generate.max_tokens()) {
    ExecuteResponse event;
    worker::v1::Finished& finished = *event.mutable_finished();
    finished.set_request_id(id);
    finished.set_reason(stops ? worker::v1::FINISH_REASON_STOP : worker::v1::FINISH_REASON_LENGTH);
    finished.set_cached_device_tokens(request.cached_tokens);
    finished.set_cached_host_tokens(request.loaded_tokens);
    end(id);
    tell(std::move(event));
  }
}

void FakeWorker::handle(Forget, ActorContext&) {
  RAG_CHECK(memory_->forgetful);
  if (!is_current()) return;
  for (auto it = memory_->device.begin(); it != memory_->device.end(); ++it) {
    const bool leaf =
        std::none_of(memory_->device.begin(), memory_->device.end(),
                     [&](const auto& other) { return other.second.parent == it->first; });
    if (it->second.pins > 0 || !leaf) continue;
    memory_->device.erase(it);
    return;
  }
}

void FakeWorker::handle(Damage, ActorContext&) {
  RAG_CHECK(memory_->forgetful);
  damage_ = true;
}

void FakeWorker::end(const std::string& request_id) {
  auto it = running_.find(request_id);
  for (const std::string& id : it->second.pinned) --memory_->device.at(id).pins;
  running_.erase(it);
}

void FakeWorker::tell(ExecuteResponse event) {
  event.set_event(++events_);
  group_.send(controller::WorkerEvent{connection_, std::move(event)});
}

void FakeWorker::tell_load() {
  ExecuteResponse event;
  worker::v1::Load& load = *event.mutable_load();
  load.set_last_command(last_command_);
  const uint32_t cached = blocks_of(memory_->device);
  const uint32_t on_host = blocks_of(memory_->host);
  load.set_total_blocks(memory_->device_blocks);
  load.set_reserved_blocks(reserved_blocks());
  load.set_cached_blocks(cached);
  load.set_free_blocks(memory_->device_blocks - reserved_blocks() - cached);
  load.set_host_total_blocks(memory_->host_blocks);
  load.set_host_cached_blocks(on_host);
  load.set_host_free_blocks(memory_->host_blocks - on_host);
  tell(std::move(event));
}

uint32_t FakeWorker::reserved_blocks() const {
  uint32_t blocks = 0;
  for (const auto& [id, request] : running_) {
    blocks += request.segment_blocks + request.private_blocks;
  }
  return blocks;
}

uint32_t FakeWorker::blocks_of(const std::map<std::string, Segment>& segments) {
  uint32_t blocks = 0;
  for (const auto& [id, segment] : segments) blocks += blocks_of(segment.tokens.size());
  return blocks;
}

}  // namespace ragcache::fakes
