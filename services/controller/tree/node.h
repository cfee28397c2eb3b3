#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/ids.h"

namespace ragcache::controller {

// Where a node's KV stands on one tier.
enum class Residence : uint8_t {
  kNone,
  kPending,  // on its way there: device: computed or loaded by a request; host: being copied
  kReady,
};

inline bool is_there(Residence residence) { return residence != Residence::kNone; }

// The id of a node's document. There may be millions of nodes: one as long as a UUID lies inside,
// with nothing allocated.
class NodeName {
 public:
  NodeName& operator=(std::string_view text) {
    const bool fits = text.size() <= sizeof(short_);
    size_ = fits ? static_cast<uint8_t>(text.size()) : 0;
    if (fits) std::copy(text.begin(), text.end(), short_);
    long_ = fits ? nullptr : std::make_unique<const std::string>(text);
    return *this;
  }

  bool empty() const { return view().empty(); }
  std::string_view view() const {
    return long_ != nullptr ? std::string_view(*long_) : std::string_view(short_, size_);
  }

 private:
  std::unique_ptr<const std::string> long_;
  uint8_t size_ = 0;
  char short_[36];
};

// A node of the knowledge tree. The tree's own; outside of it to be read only. In two lines of the
// cache, the second for what is asked for less.
struct alignas(64) TreeNode {
  SegmentId id;
  TreeNode* parent = nullptr;  // null for a root
  double priority = 0;         // of the device while it is there, else of the host
  uint32_t number = 0;         // of its place in the pool
  uint32_t tokens = 0;
  uint32_t blocks = 0;
  uint32_t device_children = 0;  // pending or ready there
  uint32_t host_children = 0;    // pending or ready there
  uint32_t users = 0;
  uint32_t expected = 0;  // waiting requests that will want it
  Residence device = Residence::kNone;
  Residence host = Residence::kNone;
  bool kept = false;  // by an operator: goes after all others
  uint32_t children = 0;
  NodeName name;  // empty for a root
};

static_assert(sizeof(TreeNode) == 128);

// On the host alone and not in use; so is all below it, for what is above a node in use is in use.
inline bool is_alone(const TreeNode& node) {
  return node.device == Residence::kNone && is_there(node.host) && node.users == 0;
}

inline bool is_copied(const TreeNode& node) {
  return node.device == Residence::kReady && is_there(node.host);
}

inline bool is_nowhere(const TreeNode& node) {
  return !is_there(node.device) && !is_there(node.host);
}

}  // namespace ragcache::controller
