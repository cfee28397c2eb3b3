#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "common/ids.h"

namespace ragcache::controller {

// Where a node's KV stands on one tier.
enum class Residence : uint8_t {
  kNone,
  kPending,  // on its way there: device: computed or loaded by a request; host: being copied
  kReady,
};

inline bool is_there(Residence residence) { return residence != Residence::kNone; }

// A node's place among the candidates of one kind.
enum class CandidateKind : uint8_t { kDevice, kHost, kCopy };
constexpr size_t kCandidateKinds = 3;

// A node of the knowledge tree. The tree's own; outside of it to be read only.
struct TreeNode {
  static constexpr uint32_t kNoPlace = std::numeric_limits<uint32_t>::max();

  SegmentId id;
  TreeNode* parent = nullptr;  // null for a root
  std::string name;            // of the document; empty for a root
  double priority = 0;         // of the device while it is there, else of the host
  uint32_t tokens = 0;
  uint32_t blocks = 0;
  uint32_t children = 0;
  uint32_t device_children = 0;  // pending or ready there
  uint32_t host_children = 0;    // pending or ready there
  uint32_t users = 0;
  uint32_t expected = 0;  // waiting requests that will want it
  Residence device = Residence::kNone;
  Residence host = Residence::kNone;
  bool kept = false;  // by an operator: goes after all others
  std::array<uint32_t, kCandidateKinds> places{kNoPlace, kNoPlace, kNoPlace};
};

inline bool is_nowhere(const TreeNode& node) {
  return !is_there(node.device) && !is_there(node.host);
}

}  // namespace ragcache::controller
