#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// One segment of a prompt, before anything is known of its KV.
struct SegmentSpec {
  SegmentId id;
  uint32_t tokens;
};

// The knowledge tree (spec §1): which segments the worker's device tier holds, what is in use, and
// what goes next. A node's key is its segment id, which stands for its tokens after exactly its
// ancestors' tokens; so a replaced document never meets its old KV. Roots are system prompts.
//
// A node is `computing` from its request's admission to SegmentReady, then `cached`. Invariants at
// all times: a node's parent is in the tree; a cached node's parent is cached; a node in use has
// all its ancestors in use; the candidates for eviction are exactly the cached nodes without
// children and without users.
//
// Owned by one GroupActor; no locks. Matching is O(segments of the request), eviction O(log n) a
// node.
class KnowledgeTree {
 public:
  struct Node;

  // REQUIRES: block_tokens >= 1. `policy` outlives the tree.
  KnowledgeTree(EvictionPolicy& policy, uint32_t block_tokens);
  ~KnowledgeTree();
  KnowledgeTree(const KnowledgeTree&) = delete;
  KnowledgeTree& operator=(const KnowledgeTree&) = delete;

  struct Match {
    size_t cached = 0;       // leading segments that are cached
    bool computing = false;  // the next one is being computed by some request
  };
  Match match(std::span<const SegmentSpec> chain) const;

  // Keeps cached nodes from eviction until release(), without counting as an access.
  // REQUIRES: every segment of `cached` is cached.
  void hold(std::span<const SegmentSpec> cached);

  // Takes the whole chain into use: its cached nodes, and new `computing` ones for the rest; tells
  // the policy of each access. REQUIRES: !match(chain).computing.
  void acquire(std::span<const SegmentSpec> chain);

  // Ends one use or hold of the chain. Nodes of it that are still computing are removed.
  // REQUIRES: acquired before and not released since.
  void release(std::span<const SegmentSpec> chain);

  // A computing node's KV is complete. False if there is no such node.
  bool set_cached(const SegmentId& id);

  // Takes over a node that the worker held before; false if it is here already or its parent is not
  // cached here. `parent` is ignored for a root.
  bool restore(const SegmentSpec& spec, const SegmentId& parent, bool is_root);

  // Removes unused nodes, least priority first, until `blocks` are freed; returns their ids in the
  // order of removal. Removes nothing and returns none if that many cannot be freed.
  std::vector<SegmentId> evict(uint32_t blocks);

  // Removes a node that turned out to be gone, with its descendants, unless any of them is in use.
  // Returns the removed ids, children before parents.
  std::vector<SegmentId> remove_subtree(const SegmentId& id);

  // Removes every node not in use, children before parents.
  std::vector<SegmentId> clear();

  uint32_t blocks_of(uint32_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  uint32_t cached_blocks() const { return cached_blocks_; }
  // Blocks that evict() could free.
  uint32_t evictable_blocks() const { return cached_blocks_ - pinned_cached_blocks_; }
  uint64_t cached_tokens() const { return cached_tokens_; }
  size_t node_count() const { return nodes_.size(); }
  size_t pinned_nodes() const { return pinned_nodes_; }

  // Aborts if an invariant is broken. O(n), for tests and after faults.
  void check_invariants() const;

 private:
  struct Candidate {
    double priority;
    Node* node;
    bool operator<(const Candidate& other) const;
  };

  Node* find(const SegmentId& id) const;
  Node& insert(const SegmentSpec& spec, Node* parent);
  void remove(Node& node);
  void update_candidate(Node& node);
  bool is_candidate(const Node& node) const;
  void pin(Node& node);
  void unpin(Node& node);

  EvictionPolicy& policy_;
  const uint32_t block_tokens_;

  absl::flat_hash_map<SegmentId, std::unique_ptr<Node>> nodes_;
  std::set<Candidate> candidates_;
  uint32_t cached_blocks_ = 0;
  uint32_t pinned_cached_blocks_ = 0;
  uint64_t cached_tokens_ = 0;
  size_t pinned_nodes_ = 0;
};

}  // namespace ragcache::controller
