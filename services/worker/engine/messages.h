#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"

// What the engine is told and what it tells, one plain struct per message of
// proto/ragcache/worker/v1/worker.proto, which says what each means.
namespace ragcache::worker {

struct LogitBias {
  uint32_t token = 0;
  float bias = 0;
};

struct SamplingParameters {
  float temperature = 0;
  float top_p = 1;
  uint32_t top_k = 0;
  uint64_t seed = 0;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<LogitBias> logit_bias;
};

enum class Tier { kNone, kDevice, kHost };

struct SegmentSpec {
  SegmentId id;
  std::vector<uint32_t> tokens;
  Tier expected = Tier::kNone;
};

// A stream of commands begins: what an older one had running ends without an event.
struct OpenStream {
  uint64_t stream;
};
// A stream broke: ends what it had running. Ignored if a newer one is open.
struct CloseStream {
  uint64_t stream;
};
struct Generate {
  std::string request_id;
  std::vector<SegmentSpec> segments;
  std::vector<uint32_t> tail;
  uint32_t reserved_blocks = 0;
  SamplingParameters sampling;
  uint32_t max_tokens = 0;
  std::vector<uint32_t> stop_tokens;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  uint32_t answer_tokens = 0;  // at the tail's end
};
struct Cancel {
  std::string request_id;
};
struct Grow {
  std::string request_id;
  uint32_t blocks = 0;
};
struct Preempt {
  std::string request_id;
};
struct Drop {
  std::vector<SegmentId> segments;
  Tier tier = Tier::kDevice;
};
struct Replicate {
  std::vector<SegmentId> segments;
};

struct Command {
  uint64_t stream = 0;
  uint64_t number = 0;
  std::variant<OpenStream, CloseStream, Generate, Cancel, Grow, Preempt, Drop, Replicate> body;
};

struct SnapshotPage {
  struct Entry {
    SegmentId id;
    std::optional<SegmentId> parent;
    uint32_t token_count;
    uint32_t blocks;
    bool on_device;
    bool on_host;
  };
  std::vector<Entry> entries;
  bool last = false;
};
struct SegmentReady {
  std::string request_id;
  SegmentId id;
  uint32_t blocks;
  bool loaded = false;
};
struct SegmentSaved {
  SegmentId id;
};
struct SegmentLost {
  SegmentId id;
  std::string reason;
};
struct TokenLogprob {
  float logprob = 0;
  std::vector<uint32_t> top_ids;
  std::vector<float> top_logprobs;
};
struct Tokens {
  std::string request_id;
  std::vector<uint32_t> ids;
  std::optional<uint32_t> cached_device_tokens;  // with the first ones
  uint32_t cached_host_tokens = 0;
  std::vector<TokenLogprob> logprobs;  // one for each id, or none
};
struct NeedBlocks {
  std::string request_id;
  uint32_t blocks;
};
struct Load {
  uint64_t last_command;
  uint32_t total_blocks;
  uint32_t free_blocks;
  uint32_t reserved_blocks;
  uint32_t cached_blocks;
  uint32_t pinned_segments;
  uint32_t running_requests;
  uint32_t host_total_blocks;
  uint32_t host_free_blocks;
  uint32_t host_cached_blocks;
  uint64_t saved_bytes;
  uint64_t loaded_bytes;
  uint64_t damaged_segments;
};
enum class FinishReason { kStop, kLength };
struct Finished {
  std::string request_id;
  FinishReason reason;
  uint32_t prompt_tokens;
  uint32_t cached_device_tokens;
  uint32_t completion_tokens;
  uint64_t prefill_us;
  uint64_t decode_us;
  uint32_t cached_host_tokens;
  uint64_t load_us;
};
struct Cancelled {
  std::string request_id;
};
enum class Failure { kMissing, kPreempted, kInvalid, kInternal };
struct Failed {
  std::string request_id;
  Failure code;
  std::string message;
  std::vector<SegmentId> missing;
};

struct Event {
  uint64_t stream = 0;
  std::variant<SnapshotPage, SegmentReady, SegmentSaved, SegmentLost, Tokens, NeedBlocks, Load,
               Finished, Cancelled, Failed>
      body;
};

}  // namespace ragcache::worker
