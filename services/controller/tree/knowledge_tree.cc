#include "services/controller/tree/knowledge_tree.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/check.h"

namespace ragcache::controller {
namespace {

// Of nodes that no request has asked for since the tree began.
constexpr double kUnclaimed = std::numeric_limits<double>::lowest();

}  // namespace

KnowledgeTree::KnowledgeTree(EvictionPolicy& policy, uint32_t block_tokens, uint32_t host_blocks)
    : policy_(policy),
      block_tokens_(block_tokens),
      host_total_(host_blocks),
      epoch_(policy.epoch()) {
  RAG_CHECK(block_tokens >= 1);
}

KnowledgeTree::~KnowledgeTree() {
  for (Node* node : nodes_) {
    policy_.on_leave(node->id);
    pool_.destroy(*node);
  }
}

// ---- requests

KnowledgeTree::Node* KnowledgeTree::find(const SegmentId& id) const {
  auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : *it;
}

KnowledgeTree::Match KnowledgeTree::match(std::span<const SegmentSpec> chain) const {
  Match result;
  for (const SegmentSpec& spec : chain) nodes_.prefetch(spec.id);
  for (const SegmentSpec& spec : chain) {
    const Node* node = find(spec.id);
    if (node == nullptr) break;
    RAG_CHECK(node->tokens == spec.tokens);
    if (is_nowhere(*node)) break;
    if (node->device == Residence::kPending) {
      result.pending = true;
      break;
    }
    ++(node->device == Residence::kReady ? result.device : result.host);
  }
  return result;
}

void KnowledgeTree::hold(std::span<const SegmentSpec> cached) {
  for (const SegmentSpec& spec : cached) {
    Node* node = find(spec.id);
    RAG_CHECK(node != nullptr && node->device != Residence::kPending);
    set_users(*node, node->users + 1);
  }
}

void KnowledgeTree::acquire(std::span<const SegmentSpec> chain,
                            const std::optional<RequestCost>& cost) {
  if (cost.has_value()) policy_.on_request();
  rescore_if_due();
  for (const SegmentSpec& spec : chain) {
    policy_.prefetch(spec.id);
    nodes_.prefetch(spec.id);
  }
  Node* parent = nullptr;
  for (const SegmentSpec& spec : chain) {
    Node* node = find(spec.id);
    const bool cached = node != nullptr && !is_nowhere(*node);
    if (node != nullptr) {
      RAG_CHECK(node->device != Residence::kPending && node->parent == parent);
      if (node->name.empty()) node->name = spec.name;  // restored without one
    } else {
      node = &insert(spec, parent);
    }
    set_users(*node, node->users + 1);
    if (node->device == Residence::kNone) set_device(*node, Residence::kPending);
    if (cost.has_value()) {
      policy_.on_access({spec.id, spec.tokens, cached, cost->seconds, cost->new_tokens});
    }
    update(*node, [&] { node->priority = policy_.priority(spec.id, spec.tokens, Tier::kDevice); });
    parent = node;
  }
}

void KnowledgeTree::release(std::span<const SegmentSpec> chain) {
  // From the leaf up, so that a node never outlives its parent's place in the tree.
  for (auto spec = chain.rbegin(); spec != chain.rend(); ++spec) {
    Node* node = find(spec->id);
    RAG_CHECK(node != nullptr && node->users > 0);
    if (node->users == 1 && node->device == Residence::kPending) {
      set_device(*node, Residence::kNone);
    }
    set_users(*node, node->users - 1);
    remove_if_nowhere(*node);
  }
}

bool KnowledgeTree::set_on_device(const SegmentId& id) {
  Node* node = find(id);
  if (node == nullptr || node->device != Residence::kPending) return false;
  RAG_CHECK(node->parent == nullptr || node->parent->device == Residence::kReady);
  set_device(*node, Residence::kReady);
  return true;
}

void KnowledgeTree::set_on_host(const SegmentId& id) {
  Node* node = find(id);
  if (node != nullptr && node->host == Residence::kPending) set_host(*node, Residence::kReady);
}

bool KnowledgeTree::restore(const SegmentSpec& spec, const SegmentId& parent_id, bool is_root,
                            bool on_device, bool on_host) {
  RAG_CHECK(on_device || on_host);
  Node* parent = is_root ? nullptr : find(parent_id);
  if (find(spec.id) != nullptr) return false;
  if (!is_root && parent == nullptr) return false;
  if (parent != nullptr && ((on_device && parent->device != Residence::kReady) ||
                            (on_host && parent->host != Residence::kReady))) {
    return false;
  }
  if (on_host && blocks_of(spec.tokens) > host_total_ - host_blocks_) return false;
  Node& node = insert(spec, parent);
  node.priority = kUnclaimed;
  if (on_device) set_device(node, Residence::kReady);
  if (on_host) set_host(node, Residence::kReady);
  return true;
}

// ---- eviction

std::vector<Move> KnowledgeTree::evict(uint32_t blocks) {
  std::vector<Move> moves;
  if (blocks > evictable_blocks()) return moves;
  rescore_if_due();
  for (uint32_t freed = 0; freed < blocks;) {
    RAG_CHECK(!candidates(CandidateKind::kDevice).empty());
    Node& node = candidates(CandidateKind::kDevice).least();
    freed += node.blocks;
    evict_from_device(node, moves);  // the parent may become a candidate
  }
  return moves;
}

void KnowledgeTree::evict_from_device(Node& node, std::vector<Move>& moves) {
  // Wanted below, and rarely in the CPU's caches: nobody has asked for them lately.
  policy_.prefetch(node.id);
  nodes_.prefetch(node.id);
  __builtin_prefetch(node.parent);
  policy_.on_evict(Tier::kDevice, node.priority);
  const bool copied = is_there(node.host) || copy_to_host(node, Room::kCopies, moves);
  ++(copied ? evictions_.demoted : evictions_.freed);
  moves.push_back({Move::Kind::kDropDevice, node.id, node.blocks});
  set_device(node, Residence::kNone);
  remove_if_nowhere(node);
}

std::vector<Move> KnowledgeTree::replicate(const SegmentId& id, bool make_room) {
  std::vector<Move> moves;
  Node* node = find(id);
  if (node == nullptr || node->device != Residence::kReady || is_there(node->host)) return moves;
  copy_to_host(*node, make_room ? Room::kAlone : Room::kFree, moves);
  return moves;
}

bool KnowledgeTree::copy_to_host(Node& node, Room room, std::vector<Move>& moves) {
  std::vector<Node*> path;  // those without a copy, the deepest first
  uint32_t blocks = 0;
  Node* copied = &node;
  for (; copied != nullptr && !is_there(copied->host); copied = copied->parent) {
    path.push_back(copied);
    blocks += copied->blocks;
  }
  // What the ancestors have there stays; do not empty the host for what will not fit beside it.
  uint32_t above = 0;
  for (const Node* step = copied; step != nullptr; step = step->parent) above += step->blocks;
  if (uint64_t{blocks} + above > host_total_) return false;
  uint32_t available = host_total_ - host_blocks_;
  if (room != Room::kFree) available += alone_blocks_;
  if (room == Room::kCopies) available += copy_blocks_ - above;
  if (available < blocks) return false;
  // As if it had the child already, lest its own copy makes room for it.
  if (copied != nullptr) update(*copied, [&] { ++copied->host_children; });
  double worth = policy_.priority(node.id, node.tokens, Tier::kHost);
  if (room == Room::kAlone) worth = policy_.copy_worth(worth);
  const bool fits = make_host_room(blocks, room, worth, moves);
  if (copied != nullptr) update(*copied, [&] { --copied->host_children; });
  if (!fits) return false;
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    moves.push_back({Move::Kind::kReplicate, (*step)->id, (*step)->blocks});
    set_host(**step, Residence::kPending);
  }
  return true;
}

bool KnowledgeTree::make_host_room(uint32_t blocks, Room room, double worth,
                                   std::vector<Move>& moves) {
  const auto least_of = [this](CandidateKind kind) {
    return candidates(kind).empty() ? nullptr : &candidates(kind).least();
  };
  while (host_total_ - host_blocks_ < blocks) {
    Node* const alone = room == Room::kFree ? nullptr : least_of(CandidateKind::kHost);
    Node* const copy = room == Room::kCopies ? least_of(CandidateKind::kCopy) : nullptr;
    const double copy_worth = copy == nullptr ? 0 : policy_.copy_worth(copy->priority);
    const bool drops_copy =
        copy != nullptr &&
        (alone == nullptr || (Candidates::rank_of(*copy) <= Candidates::rank_of(*alone) &&
                              copy_worth < alone->priority));
    if (!drops_copy && alone == nullptr) return false;
    Node& victim = drops_copy ? *copy : *alone;
    if (!policy_.admits_to_host(worth, drops_copy ? copy_worth : victim.priority)) return false;
    if (drops_copy) {
      ++evictions_.copies;
    } else {
      policy_.on_evict(Tier::kHost, victim.priority);
      ++evictions_.host;
    }
    drop_from_host(victim, moves);
  }
  return true;
}

void KnowledgeTree::drop_from_host(Node& node, std::vector<Move>& moves) {
  moves.push_back({Move::Kind::kDropHost, node.id, node.blocks});
  set_host(node, Residence::kNone);
  remove_if_nowhere(node);
}

std::vector<Move> KnowledgeTree::lose(const SegmentId& id, Tier tier) {
  std::vector<Move> moves;
  Node* top = find(id);
  if (top == nullptr) return moves;
  if (tier == Tier::kDevice && top->users > 0) return moves;  // users below are users here
  for (Node* node : children_first(*top)) {
    const bool is_top = node == top;
    if (tier == Tier::kHost) {
      if (!is_there(node->host)) continue;
      if (!is_top) moves.push_back({Move::Kind::kDropHost, node->id, node->blocks});
      set_host(*node, Residence::kNone);
    } else {
      if (!is_there(node->device)) continue;
      if (!is_top) moves.push_back({Move::Kind::kDropDevice, node->id, node->blocks});
      set_device(*node, Residence::kNone);
    }
    remove_if_nowhere(*node);
  }
  return moves;
}

std::vector<Move> KnowledgeTree::clear() {
  absl::flat_hash_set<const Node*> staying;
  for (Node* node : nodes_) {
    if (node->users == 0 && !node->kept) continue;
    for (const Node* step = node; step != nullptr; step = step->parent) {
      if (!staying.insert(step).second) break;
    }
  }
  std::vector<Move> moves;
  const std::vector<Node*> nodes = parents_first();
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node& node = **it;
    if (staying.contains(&node)) continue;
    if (is_there(node.host)) moves.push_back({Move::Kind::kDropHost, node.id, node.blocks});
    if (is_there(node.device)) moves.push_back({Move::Kind::kDropDevice, node.id, node.blocks});
    set_host(node, Residence::kNone);
    set_device(node, Residence::kNone);
    remove_if_nowhere(node);
  }
  policy_.clear();
  return moves;
}

std::vector<KnowledgeTree::Node*> KnowledgeTree::parents_first() const {
  std::vector<std::pair<uint32_t, Node*>> order;  // by depth
  for (Node* node : nodes_) {
    uint32_t depth = 0;
    for (const Node* step = node->parent; step != nullptr; step = step->parent) ++depth;
    order.emplace_back(depth, node);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->id) < std::tie(b.first, b.second->id);
  });
  std::vector<Node*> nodes;
  for (const auto& [unused, node] : order) nodes.push_back(node);
  return nodes;
}

std::vector<KnowledgeTree::Node*> KnowledgeTree::children_first(const Node& top) const {
  // Rare, so a scan is fine: nodes do not know their children.
  std::vector<Node*> nodes = parents_first();
  std::erase_if(nodes, [&top](const Node* node) {
    while (node != nullptr && node != &top) node = node->parent;
    return node == nullptr;
  });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

// ---- what waits, what is kept

void KnowledgeTree::expect(std::span<const SegmentSpec> chain) {
  for (const SegmentSpec& spec : chain) {
    const uint32_t expected = ++expected_[spec.id];
    if (Node* node = find(spec.id)) update(*node, [&] { node->expected = expected; });
  }
}

void KnowledgeTree::unexpect(std::span<const SegmentSpec> chain) {
  for (const SegmentSpec& spec : chain) {
    auto it = expected_.find(spec.id);
    RAG_CHECK(it != expected_.end());
    const uint32_t expected = --it->second;
    if (expected == 0) expected_.erase(it);
    if (Node* node = find(spec.id)) update(*node, [&] { node->expected = expected; });
  }
}

bool KnowledgeTree::keep(std::span<const SegmentSpec> chain, bool kept) {
  Node* node = chain.empty() ? nullptr : find(chain.back().id);
  if (node == nullptr || (node->device != Residence::kReady && !is_there(node->host))) return false;
  if (node->kept == kept) return true;
  update(*node, [&] { node->kept = kept; });
  kept_nodes_ += kept ? 1 : -1;
  return true;
}

void KnowledgeTree::for_each(const std::function<void(const TreeNode&)>& visit) const {
  for (const Node* node : parents_first()) visit(*node);
}

// ---- one node's states

KnowledgeTree::Node& KnowledgeTree::insert(const SegmentSpec& spec, Node* parent) {
  Node& node = pool_.make();
  node.id = spec.id;
  node.parent = parent;
  node.name = spec.name;
  node.tokens = spec.tokens;
  node.blocks = blocks_of(spec.tokens);
  if (auto it = expected_.find(spec.id); it != expected_.end()) node.expected = it->second;
  const bool inserted = nodes_.insert(&node).second;
  RAG_CHECK(inserted);
  if (parent != nullptr) update(*parent, [&] { ++parent->children; });
  return node;
}

void KnowledgeTree::remove_if_nowhere(Node& node) {
  if (!is_nowhere(node) || node.users > 0) return;
  RAG_CHECK(node.children == 0);
  if (node.kept) --kept_nodes_;
  const SegmentId id = node.id;
  Node* parent = node.parent;
  nodes_.erase(id);
  pool_.destroy(node);
  if (parent != nullptr) update(*parent, [&] { --parent->children; });
  policy_.on_leave(id);
}

template <typename Change>
void KnowledgeTree::update(Node& node, Change change) {
  std::array<bool, kCandidateKinds> could_go;
  for (size_t kind = 0; kind < kCandidateKinds; ++kind) {
    could_go[kind] = may_go(node, static_cast<CandidateKind>(kind));
  }
  const std::pair order(Candidates::rank_of(node), node.priority);
  if (is_alone(node)) alone_blocks_ -= node.blocks;
  if (is_copied(node)) copy_blocks_ -= node.blocks;
  change();
  if (is_alone(node)) alone_blocks_ += node.blocks;
  if (is_copied(node)) copy_blocks_ += node.blocks;
  const bool moves = order != std::pair(Candidates::rank_of(node), node.priority);
  for (size_t kind = 0; kind < kCandidateKinds; ++kind) {
    const bool can_go = may_go(node, static_cast<CandidateKind>(kind));
    if (could_go[kind] && (moves || !can_go)) candidates_[kind].erase(node);
    if (can_go && (moves || !could_go[kind])) candidates_[kind].insert(node);
  }
}

bool KnowledgeTree::may_go(const Node& node, CandidateKind kind) {
  switch (kind) {
    case CandidateKind::kDevice:
      return node.device == Residence::kReady && node.device_children == 0 && node.users == 0;
    case CandidateKind::kHost:
      return is_alone(node) && node.children == 0;
    case CandidateKind::kCopy:
      // A copy may go under the feet of those who use the node on the device.
      return is_copied(node) && node.host_children == 0;
  }
  return false;
}

void KnowledgeTree::set_device(Node& node, Residence to) {
  const Residence from = node.device;
  const bool was_cached = from == Residence::kReady || is_there(node.host);
  update(node, [&] {
    node.device = to;
    if (!is_there(to) && is_there(node.host)) {
      node.priority = policy_.priority(node.id, node.tokens, Tier::kHost);
    }
  });
  const bool is_cached = to == Residence::kReady || is_there(node.host);
  if (was_cached != is_cached) cached_tokens_ += is_cached ? node.tokens : -uint64_t{node.tokens};
  if (from == Residence::kReady) {
    device_blocks_ -= node.blocks;
    device_tokens_ -= node.tokens;
    if (node.users > 0) pinned_blocks_ -= node.blocks;
  }
  if (to == Residence::kReady) {
    device_blocks_ += node.blocks;
    device_tokens_ += node.tokens;
    if (node.users > 0) pinned_blocks_ += node.blocks;
  }
  Node* parent = node.parent;
  if (parent != nullptr && is_there(from) != is_there(to)) {
    update(*parent, [&] { parent->device_children += is_there(to) ? 1 : -1; });
  }
}

void KnowledgeTree::set_host(Node& node, Residence to) {
  const Residence from = node.host;
  const bool was_cached = is_there(from) || node.device == Residence::kReady;
  update(node, [&] { node.host = to; });
  const bool is_cached = is_there(to) || node.device == Residence::kReady;
  if (was_cached != is_cached) cached_tokens_ += is_cached ? node.tokens : -uint64_t{node.tokens};
  if (is_there(from) == is_there(to)) return;
  if (is_there(to)) {
    host_blocks_ += node.blocks;
    host_tokens_ += node.tokens;
  } else {
    host_blocks_ -= node.blocks;
    host_tokens_ -= node.tokens;
  }
  if (Node* parent = node.parent) {
    update(*parent, [&] { parent->host_children += is_there(to) ? 1 : -1; });
  }
}

void KnowledgeTree::set_users(Node& node, uint32_t users) {
  const bool was_pinned = node.users > 0;
  update(node, [&] { node.users = users; });
  if (was_pinned == (users > 0)) return;
  pinned_nodes_ += users > 0 ? 1 : -1;
  if (node.device == Residence::kReady) pinned_blocks_ += users > 0 ? node.blocks : -node.blocks;
}

void KnowledgeTree::rescore_if_due() {
  if (policy_.epoch() == epoch_) return;
  epoch_ = policy_.epoch();
  for (Node* node : nodes_) {
    const Tier tier = is_there(node->device) ? Tier::kDevice : Tier::kHost;
    node->priority = policy_.priority(node->id, node->tokens, tier);
  }
  for (Candidates& candidates : candidates_) candidates.reorder();
}

}  // namespace ragcache::controller
