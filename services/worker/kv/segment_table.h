#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/hash.h"
#include "common/ids.h"

namespace ragcache::worker {

// One cached segment. Its first token is at the start of its first block.
struct Segment {
  SegmentId id;
  std::optional<SegmentId> parent;  // none: the first of its chain
  uint32_t depth = 0;               // segments before it in its chain
  uint32_t token_count = 0;
  Digest token_digest{};
  std::vector<int32_t> blocks;
  uint32_t pins = 0;  // requests that read it

  // Whether it is the KV of these tokens.
  bool holds(std::span<const uint32_t> tokens, const Digest& digest) const {
    return token_count == tokens.size() && token_digest == digest;
  }
};

// The segments whose KV is complete. Owned by the engine; not thread safe. References to segments
// stay valid until they are erased.
class SegmentTable {
 public:
  Segment* find(const SegmentId& id);
  // REQUIRES: not there yet.
  Segment& insert(Segment segment);
  // Returns its blocks. REQUIRES: there, and not pinned.
  std::vector<int32_t> erase(const SegmentId& id);

  void pin(Segment& segment);
  // REQUIRES: pinned.
  void unpin(Segment& segment);

  uint32_t blocks() const { return blocks_; }
  uint32_t pinned() const { return pinned_; }
  // Every segment, parents before children.
  std::vector<const Segment*> in_chain_order() const;

 private:
  std::map<SegmentId, Segment> segments_;
  uint32_t blocks_ = 0;
  uint32_t pinned_ = 0;
};

}  // namespace ragcache::worker
