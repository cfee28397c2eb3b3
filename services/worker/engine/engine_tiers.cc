// The engine's host tier: what is copied there and back, and what becomes of a copy that fails.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log/log.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

using PartState = Request::Part::State;

// Weight of the last load's rate in what the next ones are expected to have.
constexpr double kRateWeight = 0.3;

}  // namespace

void Engine::handle(const Drop& drop) {
  for (const SegmentId& id : drop.segments) {
    const Segment* segment = segments_.find(id);
    if (segment == nullptr) continue;
    if (drop.tier == Tier::kHost) {
      if (segment->host.has_value()) drop_from_host(id);
      continue;
    }
    if (!segment->on_device()) continue;
    if (segment->pins > 0) {
      log::error("told to drop a segment in use; kept", {{"segment", id.to_string()}});
      continue;
    }
    std::vector<int32_t> blocks = segments_.remove_from_device(id);
    // The last one: a save that was given up and another may both be on their way.
    const auto reader =
        std::find_if(in_flight_.rbegin(), in_flight_.rend(), [&](const InFlight& in_flight) {
          return in_flight.transfer->kind() == Transfer::Kind::kSave &&
                 in_flight.transfer->pieces.front().device_blocks == blocks;
        });
    if (reader != in_flight_.rend()) {
      reader->blocks = std::move(blocks);
    } else {
      pool_.give_back(blocks);
    }
  }
}

void Engine::handle(const Replicate& replicate) {
  for (const SegmentId& id : replicate.segments) {
    Segment* segment = segments_.find(id);
    if (segment != nullptr && segment->host.has_value()) {
      if (segment->host->state == HostCopy::State::kReady) {
        tell(SegmentSaved{id});
      } else {
        segment->host->announced = false;
      }
      continue;
    }
    if (segment == nullptr) {
      log::error("told to copy a segment that is not here", {{"segment", id.to_string()}});
      continue;
    }
    if (segment->blocks.size() > host_blocks_.free()) {
      log::error("told to copy a segment that the host has no room for",
                 {{"segment", id.to_string()}});
      tell(SegmentLost{id, "the host has no room for it"});
      continue;
    }
    std::vector<int32_t> blocks = host_blocks_.take(segment->blocks.size());
    const auto save = submit(
        Transfer::Kind::kSave,
        {{.host = {.key = segment->key, .blocks = blocks}, .device_blocks = segment->blocks}});
    segments_.add_to_host(segment->key, {.blocks = std::move(blocks), .number = save->number()});
  }
}

void Engine::drop_from_host(const SegmentId& id) {
  const SegmentKey key = segments_.find(id)->key;
  HostCopy copy = segments_.remove_from_host(id);
  if (copy.state == HostCopy::State::kSaving) {
    for (InFlight& in_flight : in_flight_) {
      if (in_flight.transfer->number() == copy.number) in_flight.transfer->cancel();
    }
  }
  host_blocks_.give_back(copy.blocks);
  submit(Transfer::Kind::kErase, {{.host = {.key = key, .blocks = std::move(copy.blocks)}}});
  load_due_ = true;
}

void Engine::lose_host_copy(const SegmentId& id, const std::string& reason) {
  log::warn("a copy on the host is lost", {{"segment", id.to_string()}, {"reason", reason}});
  drop_from_host(id);
  tell(SegmentLost{id, reason});
}

std::shared_ptr<Transfer> Engine::submit(Transfer::Kind kind, std::vector<Transfer::Piece> pieces) {
  auto transfer =
      std::make_shared<Transfer>(kind, ++transfers_, std::move(pieces), model_.kv_layout());
  if (kind != Transfer::Kind::kErase) in_flight_.push_back({transfer, nullptr, {}});
  host_->transfers.submit(transfer);
  return transfer;
}

void Engine::submit_load(Request& request) {
  if (request.load != nullptr) return;
  size_t blocks = 0;
  for (Request::Part& part : request.parts) {
    if (part.state != PartState::kToLoad) continue;
    const Segment* segment = segments_.find(part.id);
    if (segment != nullptr && segment->on_device()) continue;  // it will be taken over
    if (segment == nullptr) {
      part.state = PartState::kToCompute;
    } else {
      blocks += segment->host->blocks.size();
    }
  }
  if (blocks == 0 || blocks > pool_.free()) return;
  std::vector<Transfer::Piece> pieces;
  for (Request::Part& part : request.parts) {
    const Segment* segment = segments_.find(part.id);
    if (part.state != PartState::kToLoad || segment->on_device()) continue;
    const bool verify = host_->verify == Verify::kAlways ||
                        (host_->verify == Verify::kFirst && !segment->host->verified);
    part.state = PartState::kLoading;
    part.blocks = pool_.take(segment->host->blocks.size());
    request.taken += static_cast<uint32_t>(part.blocks.size());
    pieces.push_back({.host = {.key = segment->key, .blocks = segment->host->blocks},
                      .device_blocks = part.blocks,
                      .verify = verify});
  }
  RAG_CHECK(request.taken <= request.reserved);
  request.load = submit(Transfer::Kind::kLoad, std::move(pieces));
  request.load_submitted = now_();
  in_flight_.back().request = &request;
}

bool Engine::waits_for_load(const Request& request) {
  if (request.next_part == request.parts.size()) return false;
  const Request::Part& part = request.parts[request.next_part];
  return request.slots.size() == part.begin &&
         (part.state == PartState::kToLoad || part.state == PartState::kLoading);
}

bool Engine::hides(const Transfer& load, double seconds) const {
  const int64_t layers = load.layers();
  const int64_t n_layers = model_.config().n_layers;
  const double left = static_cast<double>(load.bytes()) * static_cast<double>(n_layers - layers) /
                      static_cast<double>(n_layers);
  return layers > 0 && left <= load_rate_ * seconds;
}

void Engine::abandon_load(Request& request) {
  if (request.load == nullptr) return;
  const auto in_flight =
      std::find_if(in_flight_.begin(), in_flight_.end(),
                   [&](const InFlight& other) { return other.request == &request; });
  RAG_CHECK(in_flight != in_flight_.end());
  in_flight->transfer->cancel();
  in_flight->request = nullptr;
  for (Request::Part& part : request.parts) {
    if (part.state != PartState::kLoading) continue;
    in_flight->blocks.insert(in_flight->blocks.end(), part.blocks.begin(), part.blocks.end());
    part.blocks.clear();
  }
  request.load.reset();
}

void Engine::collect_transfers() {
  while (!in_flight_.empty() && in_flight_.front().transfer->ended()) {
    const InFlight ended = std::move(in_flight_.front());
    in_flight_.pop_front();
    pool_.give_back(ended.blocks);
    const bool saves = ended.transfer->kind() == Transfer::Kind::kSave;
    if (ended.transfer->done_bytes() == ended.transfer->bytes()) {
      (saves ? metrics_.save_seconds : metrics_.load_seconds)
          .Observe(to_seconds(ended.transfer->end - ended.transfer->start));
    }
    if (saves) {
      saved(*ended.transfer);
    } else {
      loaded(*ended.transfer, ended.request);
    }
  }
}

void Engine::saved(const Transfer& transfer) {
  const Transfer::Piece& piece = transfer.pieces.front();
  const SegmentId& id = piece.host.key.id;
  Segment* segment = segments_.find(id);
  if (segment == nullptr || !segment->host.has_value() ||
      segment->host->number != transfer.number()) {
    return;  // dropped meanwhile
  }
  if (piece.outcome != Transfer::Outcome::kDone) {
    return lose_host_copy(id, "it could not be copied");
  }
  saved_bytes_ += transfer.bytes();
  metrics_.saved_bytes.Increment(static_cast<double>(transfer.bytes()));
  segment->host->state = HostCopy::State::kReady;
  segment->host->verified = true;
  if (!std::exchange(segment->host->announced, true)) tell(SegmentSaved{id});
  load_due_ = true;
}

void Engine::loaded(const Transfer& transfer, Request* request) {
  const uint64_t bytes = transfer.done_bytes();
  loaded_bytes_ += bytes;
  metrics_.loaded_bytes.Increment(static_cast<double>(bytes));
  const double seconds = to_seconds(transfer.end - transfer.start);
  // What is missing or damaged takes another time than its bytes.
  if (bytes == transfer.bytes() && seconds > 0) {
    load_rate_ += kRateWeight * (static_cast<double>(bytes) / seconds - load_rate_);
  }
  for (const Transfer::Piece& piece : transfer.pieces) {
    // The copy that was read, not one that was made after it was dropped.
    Segment* segment = segments_.find(piece.host.key.id);
    const bool same = segment != nullptr && segment->host.has_value() &&
                      segment->host->number < transfer.number() &&
                      segment->host->blocks == piece.host.blocks;
    if (piece.outcome == Transfer::Outcome::kDamaged) {
      ++damaged_segments_;
      metrics_.damaged_segments.Increment();
      if (same) lose_host_copy(piece.host.key.id, "its checksum does not match");
    } else if (piece.outcome == Transfer::Outcome::kMissing) {
      if (same) lose_host_copy(piece.host.key.id, "it is not in the arena");
    } else if (piece.outcome == Transfer::Outcome::kDone && same && piece.verify) {
      segment->host->verified = true;
    }
  }
  load_due_ = true;
  if (request == nullptr) return;

  request->load.reset();
  request->load_us = to_us(transfer.end - transfer.start);
  if (host_->on_load) {
    host_->on_load({transfer.bytes(), transfer.start, transfer.end, transfer.copied,
                    std::exchange(request->layers_reached, {}),
                    std::exchange(request->layers_read, {})});
  }
  std::vector<size_t> whole;
  auto piece = transfer.pieces.begin();
  for (size_t i = 0; i < request->parts.size(); ++i) {
    Request::Part& part = request->parts[i];
    if (part.state != PartState::kLoading) continue;
    if (piece->outcome == Transfer::Outcome::kDone) {
      whole.push_back(i);
    } else {
      // It is computed into the blocks that it was to be loaded into. What was computed behind it
      // saw what was not there.
      part.state = PartState::kToCompute;
      if (request->slots.size() > part.begin) {
        request->slots.resize(part.begin);
        request->computed = part.begin;
        request->next_part = i;
      }
    }
    ++piece;
  }
  for (const size_t index : whole) {
    const auto tokens =
        static_cast<uint32_t>(request->parts[index].end - request->parts[index].begin);
    request->cached_host_tokens += tokens;
    metrics_.cached_host_tokens.Increment(tokens);
    cache_part(*request, index, true);
  }
}

}  // namespace ragcache::worker
