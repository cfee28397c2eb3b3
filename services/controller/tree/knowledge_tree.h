#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/huge_pages.h"
#include "common/ids.h"
#include "services/controller/policy/policy.h"
#include "services/controller/tree/candidates.h"
#include "services/controller/tree/node.h"
#include "services/controller/tree/node_pool.h"

namespace ragcache::controller {

// One segment of a prompt, before anything is known of its KV.
struct SegmentSpec {
  SegmentId id;
  uint32_t tokens;
  std::string name{};  // of the document; operators name paths by it
};

// What the worker must do for the tree to be right, in this order.
struct Move {
  enum class Kind : uint8_t { kReplicate, kDropDevice, kDropHost };
  Kind kind;
  SegmentId id;
  uint32_t blocks;
  bool operator==(const Move&) const = default;
};

// Estimated prefill time of a request, and how many tokens of it are not cached.
struct RequestCost {
  double seconds = 0;
  uint32_t new_tokens = 0;
};

// The knowledge tree (RAGCache, arXiv 2404.12457): which segments the worker holds on which tier,
// what is in use, and what goes next. A node's key is its segment id, which stands for its tokens
// after exactly its ancestors' tokens; so a replaced document never meets its old KV. Roots are
// system prompts.
//
// Placement, at all times: a node that is on the device, or on its way, has its parent there; a
// node that has a host copy, or is getting one, has a parent that does too; a node in use has all
// its ancestors in use; one that is nowhere is in the tree only as long as it is in use.
//
// Eviction from the device takes the node of least priority of those with no child there, and gives
// it to the host: swapped out only once, since a host copy stays until its node leaves the cache.
// A copy needs copies of all ancestors, or a lost device would leave it out of reach: these
// are made first. Room on the host comes from nodes that are there alone, least priority first,
// then from copies of what the device has, leaf first, or from these before, where the policy rates
// them lower; where neither gives enough the node is freed instead. A host that loses a node to
// make room loses it altogether.
//
// All decisions take effect here at once and are returned as moves for the worker, which carries
// them out in order. Owned by one GroupActor; no locks. Matching is O(segments of the request),
// eviction O(log n) a node.
class KnowledgeTree {
 public:
  // REQUIRES: block_tokens >= 1. `policy` outlives the tree. `host_blocks` 0: no host tier.
  KnowledgeTree(EvictionPolicy& policy, uint32_t block_tokens, uint32_t host_blocks);
  ~KnowledgeTree();
  KnowledgeTree(const KnowledgeTree&) = delete;
  KnowledgeTree& operator=(const KnowledgeTree&) = delete;

  struct Match {
    size_t device = 0;     // leading segments that are on the device
    size_t host = 0;       // those that follow and have a host copy
    bool pending = false;  // the next one is being computed or loaded by some request
    size_t cached() const { return device + host; }
  };
  Match match(std::span<const SegmentSpec> chain) const;

  // Keeps cached nodes from eviction until release(), without counting as an access.
  // REQUIRES: every segment of `cached` is cached on some tier.
  void hold(std::span<const SegmentSpec> cached);

  // Takes the whole chain into use. What is not on the device becomes pending there, to be computed
  // or loaded. REQUIRES: !match(chain).pending. With a cost the policy is told of each access; a
  // request that comes again has none.
  void acquire(std::span<const SegmentSpec> chain, const std::optional<RequestCost>& cost);

  // Ends one use or hold of the chain. What is still pending on the device is so no more.
  // REQUIRES: acquired before and not released since.
  void release(std::span<const SegmentSpec> chain);

  // A pending node's KV is complete on the device. False if there is no such node.
  bool set_on_device(const SegmentId& id);
  // The copy that a kReplicate asked for is complete.
  void set_on_host(const SegmentId& id);

  // Takes over a node that the worker held before, of least priority until a request wants it;
  // false if it is here already or its parent is not where it must be. `parent` is ignored for a
  // root. REQUIRES: one of the tiers.
  bool restore(const SegmentSpec& spec, const SegmentId& parent, bool is_root, bool on_device,
               bool on_host);

  // Moves nodes off the device, least priority first, until `blocks` are free there. Moves nothing
  // if that many cannot be.
  std::vector<Move> evict(uint32_t blocks);

  // Gives a node of the device a host copy, and its ancestors: where the host has room, or, if
  // `make_room`, can make it out of nodes that are there alone and that the policy values less.
  // None if not, but for what was given up before one was met that it does not.
  std::vector<Move> replicate(const SegmentId& id, bool make_room);

  // A node turned out to be gone from the device, or its host copy to be unusable. Removes it and
  // its descendants from that tier; from the device only if none of them is in use. The worker no
  // longer has the copy itself, so it is not among the moves.
  std::vector<Move> lose(const SegmentId& id, Tier tier);

  // Removes every node from both tiers that neither is in use or kept nor has such below; history
  // too.
  std::vector<Move> clear();

  // Waiting requests will want the chain, or no longer wait.
  void expect(std::span<const SegmentSpec> chain);
  void unexpect(std::span<const SegmentSpec> chain);

  // Has the last node of the chain, and so its ancestors, leave a tier only when nothing else can
  // make room, or no longer. False if it is not cached.
  bool keep(std::span<const SegmentSpec> chain, bool kept);

  // Every node, parents before children.
  void for_each(const std::function<void(const TreeNode&)>& visit) const;

  uint32_t blocks_of(uint32_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  // Blocks of nodes that are ready on the device.
  uint32_t device_blocks() const { return device_blocks_; }
  uint64_t device_tokens() const { return device_tokens_; }
  // Blocks of host copies, complete or not.
  uint32_t host_blocks() const { return host_blocks_; }
  uint64_t host_tokens() const { return host_tokens_; }
  uint64_t cached_tokens() const { return cached_tokens_; }  // on either tier, each node once
  // Blocks that evict() could free.
  uint32_t evictable_blocks() const { return device_blocks_ - pinned_blocks_; }
  size_t node_count() const { return nodes_.size(); }
  size_t pinned_nodes() const { return pinned_nodes_; }
  size_t kept_nodes() const { return kept_nodes_; }
  struct Evictions {
    uint64_t demoted = 0;  // device to host
    uint64_t freed = 0;    // from the device, with no copy
    uint64_t host = 0;     // from the host, and so from the cache
    uint64_t copies = 0;   // host copies of nodes of the device
  };
  const Evictions& evictions() const { return evictions_; }

  // Aborts if an invariant is broken. O(n), for tests and after faults.
  void check_invariants() const;

 private:
  using Node = TreeNode;

  Node* find(const SegmentId& id) const;
  Node& insert(const SegmentSpec& spec, Node* parent);
  // Removes the node if it is on no tier, and tells the policy.
  void remove_if_nowhere(Node& node);
  void set_device(Node& node, Residence to);
  void set_host(Node& node, Residence to);
  void set_users(Node& node, uint32_t users);
  // Why a node may go.
  enum class CandidateKind : uint8_t { kDevice, kHost, kCopy };
  static constexpr size_t kCandidateKinds = 3;
  Candidates& candidates(CandidateKind kind) { return candidates_[static_cast<size_t>(kind)]; }
  static bool may_go(const Node& node, CandidateKind kind);
  // Changes the node, and its place among the candidates with it.
  template <typename Change>
  void update(Node& node, Change change);
  void rescore_if_due();

  void evict_from_device(Node& node, std::vector<Move>& moves);
  // What may go for a copy to the host: nothing; nodes that are there alone; copies of what the
  // device has, too.
  enum class Room : uint8_t { kFree, kAlone, kCopies };
  // Host copies of the node and its ancestors, in moves; false, and nothing but room made, if there
  // is none.
  bool copy_to_host(Node& node, Room room, std::vector<Move>& moves);
  bool make_host_room(uint32_t blocks, Room room, double worth, std::vector<Move>& moves);
  void drop_from_host(Node& node, std::vector<Move>& moves);
  // Every node; the node and its descendants. O(n log n).
  std::vector<Node*> parents_first() const;
  std::vector<Node*> children_first(const Node& top) const;

  EvictionPolicy& policy_;
  const uint32_t block_tokens_;
  const uint32_t host_total_;

  // By their ids, which are not stored twice.
  struct NodeHash {
    using is_transparent = void;
    size_t operator()(const SegmentId& id) const { return SegmentIdHash()(id); }
    size_t operator()(const Node* node) const { return (*this)(node->id); }
  };
  struct NodeEqual {
    using is_transparent = void;
    static const SegmentId& id(const SegmentId& id) { return id; }
    static const SegmentId& id(const Node* node) { return node->id; }
    bool operator()(const auto& a, const auto& b) const { return id(a) == id(b); }
  };

  NodePool pool_;
  absl::flat_hash_set<Node*, NodeHash, NodeEqual, HugePageAllocator<Node*>> nodes_;
  // Of waiting requests; kept apart from the nodes, which may come and go meanwhile.
  absl::flat_hash_map<SegmentId, uint32_t> expected_;
  std::array<Candidates, kCandidateKinds> candidates_{Candidates(pool_), Candidates(pool_),
                                                      Candidates(pool_)};
  uint64_t epoch_ = 0;  // of the policy's priorities

  uint32_t device_blocks_ = 0;
  uint32_t pinned_blocks_ = 0;  // of them, of nodes in use
  uint64_t device_tokens_ = 0;
  uint32_t host_blocks_ = 0;
  uint32_t alone_blocks_ = 0;  // of them, of nodes that are there alone and not in use
  uint32_t copy_blocks_ = 0;   // of them, of nodes that are on the device
  uint64_t host_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  size_t pinned_nodes_ = 0;
  size_t kept_nodes_ = 0;
  Evictions evictions_;
};

}  // namespace ragcache::controller
