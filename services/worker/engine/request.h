#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/hash.h"
#include "services/worker/engine/messages.h"
#include "services/worker/kv/segment_table.h"
#include "services/worker/kv/transfer.h"

namespace ragcache::worker {

// One Generate while the engine has it.
//
// Its tokens are the segments', the tail's (which may end with what the answer had before a
// preemption), and what it generated; `computed` of them have their KV in `slots`. The last
// generated token is computed in the next iteration. Of its reservation
// `taken` blocks are in its hands: those of segments being computed or loaded and the private ones
// (tail and generated tokens).
//
// A part is cached already, or computed, or loaded. `slots` and `computed` may run ahead over parts
// that are still being loaded (Engine::join_load); if one of them fails, they go back to its begin.
struct Request {
  struct Part {
    enum class State { kToCompute, kToLoad, kLoading, kCached };

    State state = State::kToCompute;
    SegmentId id;
    size_t begin = 0;  // in tokens
    size_t end = 0;
    Digest digest{};
    std::vector<int32_t> blocks;  // while it is computed or loaded
    Segment* pinned = nullptr;    // once it is cached
  };

  std::string id;
  std::vector<uint32_t> tokens;
  std::vector<int32_t> slots;
  size_t computed = 0;
  size_t given_tokens = 0;   // by Generate
  size_t prompt_tokens = 0;  // of them; the answer's follow

  std::vector<Part> parts;
  size_t next_part = 0;            // parts before it have slots and are computed
  std::shared_ptr<Transfer> load;  // of the parts that are kLoading
  TimePoint load_submitted{};
  // Of the layers of `load`: when the computation came to each, and when it could go on.
  std::vector<TimePoint> layers_reached;
  std::vector<TimePoint> layers_read;
  std::vector<int32_t> private_blocks;

  uint32_t reserved = 0;
  uint32_t taken = 0;
  bool asked = false;  // a NeedBlocks is unanswered

  SamplingParameters sampling;
  uint32_t max_tokens = 0;
  std::vector<uint32_t> stop_tokens;
  bool logprobs = false;
  uint32_t top_logprobs = 0;

  uint32_t cached_device_tokens = 0;
  uint32_t cached_host_tokens = 0;
  uint64_t load_us = 0;
  bool cached_told = false;
  bool started = false;
  TimePoint start{};
  TimePoint first_token{};

  size_t generated() const { return tokens.size() - given_tokens; }
  bool decoding() const { return tokens.size() > given_tokens; }
  // Where the tail begins.
  size_t tail_begin() const { return parts.empty() ? 0 : parts.back().end; }
};

}  // namespace ragcache::worker
