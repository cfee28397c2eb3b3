#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace ragcache::controller {

enum class Tier { kDevice, kHost };

// Ids are hashes already.
struct SegmentIdHash {
  size_t operator()(const SegmentId& id) const {
    size_t bits;
    std::memcpy(&bits, id.bytes.data(), sizeof(bits));
    return bits;
  }
};

// One request's use of one node, as a policy sees it.
struct NodeAccess {
  SegmentId id;
  uint32_t tokens;
  bool cached;  // on either tier
  // Of the request, where the node is not cached: its estimated prefill, and what it computes.
  double cost_seconds = 0;
  uint32_t new_tokens = 0;
};

// Decides what the tree gives up first. Keeps what it remembers of nodes itself, by id, so that
// history can outlive the nodes. Knows no I/O, clock or thread; called by the tree alone.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual std::string_view name() const = 0;

  // A request begins; the accesses to its nodes follow, the root's first.
  virtual void on_request() {}
  virtual void on_access(const NodeAccess& access) = 0;
  // The node's priority in the tier as things stand. The tree asks after an access and when a node
  // comes to the host; of the nodes that may go, the one of least priority goes first, ties by id.
  virtual double priority(const SegmentId& id, uint32_t tokens, Tier tier) = 0;
  // A node of this priority was evicted from the tier.
  virtual void on_evict(Tier /*tier*/, double /*priority*/) {}
  // The node's KV has left the cache altogether.
  virtual void on_leave(const SegmentId& id) = 0;
  // Nothing was ever asked for.
  virtual void clear() = 0;
  // The tree will soon tell of the node: what is known of it may be fetched from memory meanwhile.
  virtual void prefetch(const SegmentId& /*id*/) const {}

  // What the host's copy of a node that the device has is worth, beside the priorities of nodes
  // that the host alone has. It saves something only if the device is lost; by default it goes
  // after them.
  virtual double copy_worth(double /*priority*/) const {
    return std::numeric_limits<double>::infinity();
  }
  // Whether something worth so much is taken to the host, where what goes for it is worth `victim`.
  virtual bool admits_to_host(double /*worth*/, double /*victim*/) const { return true; }
  // Whether nodes that waiting requests will want go last.
  virtual bool looks_ahead() const { return false; }
  // Rises when priorities that were told before no longer compare with those told from now on: the
  // tree then asks for all of them again.
  virtual uint64_t epoch() const { return 0; }
  // The tier's logical clock, where the policy has one.
  virtual double clock(Tier /*tier*/) const { return 0; }
};

// Estimated time of a prefill of new tokens after cached ones.
using PrefillSeconds = std::function<double(uint32_t cached_tokens, uint32_t new_tokens)>;

struct PolicyOptions {
  // Whether what is known of a node outlives its stay in the cache, and of how many that left.
  bool remember = true;
  size_t history_limit = 1 << 18;
  uint32_t window_requests = 10'000;  // of pgdsf
  PrefillSeconds prefill_seconds = unmeasured_prefill_seconds();

  size_t departed_limit() const { return remember ? history_limit : 0; }
  // PrefillCost::unmeasured().
  static PrefillSeconds unmeasured_prefill_seconds();
};

// What make_policy() knows, the recommended one first.
std::vector<std::string> policy_names();

// INVALID_ARGUMENT for an unknown name; it lists those that are known.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> make_policy(const std::string& name,
                                                            const PolicyOptions& options = {});

}  // namespace ragcache::controller
