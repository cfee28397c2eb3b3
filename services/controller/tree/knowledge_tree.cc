#include "services/controller/tree/knowledge_tree.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"

namespace ragcache::controller {

struct KnowledgeTree::Node {
  SegmentId id;
  Node* parent;  // null for a root
  uint32_t tokens;
  uint32_t blocks;
  uint32_t children = 0;
  uint32_t users = 0;
  bool cached = false;
  bool in_candidates = false;
  double priority = 0;
};

bool KnowledgeTree::Candidate::operator<(const Candidate& other) const {
  return std::tie(priority, node->id) < std::tie(other.priority, other.node->id);
}

KnowledgeTree::KnowledgeTree(EvictionPolicy& policy, uint32_t block_tokens)
    : policy_(policy), block_tokens_(block_tokens) {
  RAG_CHECK(block_tokens >= 1);
}

KnowledgeTree::~KnowledgeTree() = default;

KnowledgeTree::Node* KnowledgeTree::find(const SegmentId& id) const {
  auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : it->second.get();
}

KnowledgeTree::Match KnowledgeTree::match(std::span<const SegmentSpec> chain) const {
  Match result;
  for (const SegmentSpec& spec : chain) {
    const Node* node = find(spec.id);
    if (node == nullptr) break;
    RAG_CHECK(node->tokens == spec.tokens);
    if (!node->cached) {
      result.computing = true;
      break;
    }
    ++result.cached;
  }
  return result;
}

void KnowledgeTree::hold(std::span<const SegmentSpec> cached) {
  for (const SegmentSpec& spec : cached) {
    Node* node = find(spec.id);
    RAG_CHECK(node != nullptr && node->cached);
    pin(*node);
  }
}

void KnowledgeTree::acquire(std::span<const SegmentSpec> chain) {
  Node* parent = nullptr;
  for (const SegmentSpec& spec : chain) {
    Node* node = find(spec.id);
    const bool cached = node != nullptr;
    if (cached) {
      RAG_CHECK(node->cached && node->parent == parent);
    } else {
      node = &insert(spec, parent);
    }
    pin(*node);
    node->priority = policy_.on_access({spec.id, spec.tokens, cached});
    parent = node;
  }
}

void KnowledgeTree::release(std::span<const SegmentSpec> chain) {
  // From the leaf up, so that a node never outlives its parent's place in the tree.
  for (auto spec = chain.rbegin(); spec != chain.rend(); ++spec) {
    Node* node = find(spec->id);
    RAG_CHECK(node != nullptr);
    unpin(*node);
    if (!node->cached) remove(*node);
  }
}

bool KnowledgeTree::set_cached(const SegmentId& id) {
  Node* node = find(id);
  if (node == nullptr || node->cached) return false;
  RAG_CHECK(node->parent == nullptr || node->parent->cached);
  node->cached = true;
  cached_blocks_ += node->blocks;
  cached_tokens_ += node->tokens;
  if (node->users > 0) pinned_cached_blocks_ += node->blocks;
  update_candidate(*node);
  return true;
}

bool KnowledgeTree::restore(const SegmentSpec& spec, const SegmentId& parent_id, bool is_root) {
  Node* parent = is_root ? nullptr : find(parent_id);
  if (find(spec.id) != nullptr || (!is_root && (parent == nullptr || !parent->cached)))
    return false;
  Node& node = insert(spec, parent);
  node.priority = policy_.on_access({spec.id, spec.tokens, true});
  return set_cached(spec.id);
}

std::vector<SegmentId> KnowledgeTree::evict(uint32_t blocks) {
  std::vector<SegmentId> evicted;
  if (blocks > evictable_blocks()) return evicted;
  uint32_t freed = 0;
  while (freed < blocks) {
    RAG_CHECK(!candidates_.empty());
    Node& node = *candidates_.begin()->node;
    freed += node.blocks;
    evicted.push_back(node.id);
    remove(node);  // the parent may become a candidate
  }
  return evicted;
}

std::vector<SegmentId> KnowledgeTree::remove_subtree(const SegmentId& id) {
  Node* top = find(id);
  if (top == nullptr) return {};
  // Rare, so a scan is fine: nodes do not know their children.
  std::vector<std::pair<uint32_t, Node*>> below;  // depth under the top, node
  for (const auto& [unused, node] : nodes_) {
    uint32_t depth = 0;
    for (Node* step = node.get(); step != nullptr; step = step->parent, ++depth) {
      if (step != top) continue;
      if (node->users > 0) return {};
      below.emplace_back(depth, node.get());
      break;
    }
  }
  std::sort(below.begin(), below.end(), [](const auto& a, const auto& b) {
    return std::tie(b.first, a.second->id) < std::tie(a.first, b.second->id);
  });
  std::vector<SegmentId> removed;
  for (const auto& [unused, node] : below) {
    removed.push_back(node->id);
    remove(*node);
  }
  return removed;
}

std::vector<SegmentId> KnowledgeTree::clear() { return evict(evictable_blocks()); }

KnowledgeTree::Node& KnowledgeTree::insert(const SegmentSpec& spec, Node* parent) {
  auto owned = std::make_unique<Node>(Node{spec.id, parent, spec.tokens, blocks_of(spec.tokens)});
  Node& node = *owned;
  const bool inserted = nodes_.emplace(spec.id, std::move(owned)).second;
  RAG_CHECK(inserted);
  if (parent != nullptr) {
    ++parent->children;
    update_candidate(*parent);
  }
  return node;
}

void KnowledgeTree::remove(Node& node) {
  RAG_CHECK(node.users == 0 && node.children == 0);
  if (node.in_candidates) candidates_.erase({node.priority, &node});
  if (node.cached) {
    cached_blocks_ -= node.blocks;
    cached_tokens_ -= node.tokens;
  }
  Node* parent = node.parent;
  nodes_.erase(SegmentId(node.id));  // a copy: the key must not live in what is erased
  if (parent != nullptr) {
    --parent->children;
    update_candidate(*parent);
  }
}

bool KnowledgeTree::is_candidate(const Node& node) const {
  return node.cached && node.users == 0 && node.children == 0;
}

void KnowledgeTree::update_candidate(Node& node) {
  const bool wanted = is_candidate(node);
  if (wanted == node.in_candidates) return;
  // While a node is a candidate its priority does not change: an access pins it first.
  if (wanted) {
    candidates_.insert({node.priority, &node});
  } else {
    candidates_.erase({node.priority, &node});
  }
  node.in_candidates = wanted;
}

void KnowledgeTree::pin(Node& node) {
  if (node.users++ == 0) {
    ++pinned_nodes_;
    if (node.cached) pinned_cached_blocks_ += node.blocks;
    update_candidate(node);
  }
}

void KnowledgeTree::unpin(Node& node) {
  RAG_CHECK(node.users > 0);
  if (--node.users == 0) {
    --pinned_nodes_;
    if (node.cached) pinned_cached_blocks_ -= node.blocks;
    update_candidate(node);
  }
}

void KnowledgeTree::check_invariants() const {
  uint32_t cached_blocks = 0;
  uint32_t pinned_cached_blocks = 0;
  uint64_t cached_tokens = 0;
  size_t pinned = 0;
  size_t candidates = 0;
  absl::flat_hash_map<const Node*, uint32_t> children;
  for (const auto& [id, node] : nodes_) {
    RAG_CHECK(id == node->id);
    if (node->cached) {
      cached_blocks += node->blocks;
      cached_tokens += node->tokens;
      if (node->users > 0) pinned_cached_blocks += node->blocks;
    } else {
      RAG_CHECK(node->users > 0);
    }
    if (node->users > 0) ++pinned;
    if (const Node* parent = node->parent) {
      RAG_CHECK(find(parent->id) == parent);
      RAG_CHECK(parent->cached || !node->cached);
      RAG_CHECK(parent->users >= (node->users > 0 ? 1u : 0u));
      ++children[parent];
    }
    RAG_CHECK(node->in_candidates == is_candidate(*node));
    if (node->in_candidates) {
      ++candidates;
      RAG_CHECK(candidates_.contains({node->priority, node.get()}));
    }
  }
  for (const auto& [id, node] : nodes_) {
    auto it = children.find(node.get());
    RAG_CHECK(node->children == (it == children.end() ? 0 : it->second));
  }
  RAG_CHECK(candidates == candidates_.size());
  RAG_CHECK(cached_blocks == cached_blocks_ && pinned_cached_blocks == pinned_cached_blocks_);
  RAG_CHECK(cached_tokens == cached_tokens_ && pinned == pinned_nodes_);
}

}  // namespace ragcache::controller
