#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/hash.h"
#include "common/ids.h"

namespace ragcache::worker {

// What a segment is, wherever its KV lies. Its first token is at the start of its first block.
struct SegmentKey {
  SegmentId id;
  std::optional<SegmentId> parent;  // none: the first of its chain
  uint32_t depth = 0;               // segments before it in its chain
  uint32_t token_count = 0;
  Digest token_digest{};
};

// A segment's KV on the host. Its blocks are its own from the moment the copy is ordered.
struct HostCopy {
  enum class State { kSaving, kReady };

  State state = State::kSaving;
  std::vector<int32_t> blocks;
  uint64_t number = 0;     // of the transfer that makes it; 0: found at the start
  bool verified = false;   // made by this process, or its checksums were right once
  bool announced = false;  // the controller knows of it
};

// One cached segment: its KV is complete on the device, or has a copy on the host, or both.
struct Segment {
  SegmentKey key;
  std::vector<int32_t> blocks;  // on the device; none: it is not there
  uint32_t pins = 0;            // requests that read them
  std::optional<HostCopy> host;

  bool on_device() const { return !blocks.empty(); }
  // Whether it is the KV of these tokens.
  bool holds(std::span<const uint32_t> tokens, const Digest& digest) const {
    return key.token_count == tokens.size() && key.token_digest == digest;
  }
};

// The cached segments of both tiers. A segment that leaves a tier while a transfer still uses its
// blocks there is gone from the table at once: the blocks are the transfer's then (Engine). Owned
// by the engine; not thread safe. References to segments stay valid until they are on no tier.
class SegmentTable {
 public:
  Segment* find(const SegmentId& id);
  // The same, if it is on the device.
  Segment* find_on_device(const SegmentId& id);

  // REQUIRES: not on the device yet; at least one block.
  Segment& add_to_device(const SegmentKey& key, std::vector<int32_t> blocks);
  // Returns its blocks. REQUIRES: there, and not pinned.
  std::vector<int32_t> remove_from_device(const SegmentId& id);
  // REQUIRES: no copy on the host yet; at least one block.
  Segment& add_to_host(const SegmentKey& key, HostCopy copy);
  // REQUIRES: there.
  HostCopy remove_from_host(const SegmentId& id);

  void pin(Segment& segment);
  // REQUIRES: pinned.
  void unpin(Segment& segment);

  uint32_t device_blocks() const { return device_blocks_; }
  uint32_t host_blocks() const { return host_blocks_; }
  uint32_t pinned() const { return pinned_; }
  // Every segment, parents before children.
  std::vector<Segment*> in_chain_order();

 private:
  Segment& find_or_add(const SegmentKey& key);
  void forget_if_nowhere(const SegmentId& id);

  std::map<SegmentId, Segment> segments_;
  uint32_t device_blocks_ = 0;
  uint32_t host_blocks_ = 0;
  uint32_t pinned_ = 0;
};

}  // namespace ragcache::worker
