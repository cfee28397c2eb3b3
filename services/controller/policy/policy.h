#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace ragcache::controller {

// One request's use of one node, as a policy sees it.
struct NodeAccess {
  SegmentId id;
  uint32_t tokens;
  bool cached;
};

// Decides what the tree gives up first. Knows no I/O, clock or thread; called by the tree alone.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual std::string_view name() const = 0;
  // A request uses the node. Returns the node's priority from now on: of the nodes that may go,
  // the one of least priority goes first, ties by id.
  virtual double on_access(const NodeAccess& access) = 0;
};

// INVALID_ARGUMENT for an unknown name.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> make_policy(const std::string& name);

}  // namespace ragcache::controller
