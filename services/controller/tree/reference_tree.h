#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "services/controller/tree/knowledge_tree.h"
#include "services/controller/tree/reference_policies.h"

namespace ragcache::controller {

// A plain model of the knowledge tree, for tests: everything is found by scanning, nothing is kept
// incrementally.
class ReferenceTree {
 public:
  ReferenceTree(ReferencePolicy& policy, uint32_t host_blocks)
      : policy_(policy), host_total_(host_blocks) {}

  KnowledgeTree::Match match(const std::string& path) const {
    KnowledgeTree::Match match;
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const Node* node = find(path.substr(0, depth));
      if (node == nullptr || nowhere(*node)) break;
      if (node->device == Residence::kPending) {
        match.pending = true;
        break;
      }
      ++(node->device == Residence::kReady ? match.device : match.host);
    }
    return match;
  }

  void hold(const std::string& path) {
    for (size_t depth = 1; depth <= path.size(); ++depth) ++nodes_.at(path.substr(0, depth)).users;
  }

  void acquire(const std::string& path, const std::optional<RequestCost>& cost) {
    if (cost.has_value()) policy_.request();
    rescore();
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const std::string prefix = path.substr(0, depth);
      const bool cached = find(prefix) != nullptr && !nowhere(*find(prefix));
      Node& node = nodes_[prefix];
      ++node.users;
      if (node.device == Residence::kNone) node.device = Residence::kPending;
      if (cost.has_value()) {
        policy_.access({prefix, cached, cost->seconds / std::max(1u, cost->new_tokens)});
      }
      node.priority = policy_.priority(prefix, Tier::kDevice);
    }
  }

  void release(const std::string& path) {
    for (size_t depth = path.size(); depth >= 1; --depth) {
      const std::string prefix = path.substr(0, depth);
      Node& node = nodes_.at(prefix);
      if (node.users == 1 && node.device == Residence::kPending) {
        node.device = Residence::kNone;
        node.priority = policy_.priority(prefix, Tier::kHost);
      }
      --node.users;
      remove_if_nowhere(prefix);
    }
  }

  bool set_on_device(const std::string& path) {
    Node* node = find(path);
    if (node == nullptr || node->device != Residence::kPending) return false;
    node->device = Residence::kReady;
    return true;
  }

  void set_on_host(const std::string& path) {
    Node* node = find(path);
    if (node != nullptr && node->host == Residence::kPending) node->host = Residence::kReady;
  }

  bool restore(const std::string& path, bool on_device, bool on_host) {
    if (find(path) != nullptr) return false;
    if (path.size() > 1) {
      const Node* parent = find(path.substr(0, path.size() - 1));
      if (parent == nullptr || (on_device && parent->device != Residence::kReady) ||
          (on_host && parent->host != Residence::kReady)) {
        return false;
      }
    }
    if (on_host && host_blocks() + blocks_of(path) > host_total_) return false;
    Node& node = nodes_[path];
    node.priority = std::numeric_limits<double>::lowest();
    if (on_device) node.device = Residence::kReady;
    if (on_host) node.host = Residence::kReady;
    return true;
  }

  std::vector<Move> evict(uint32_t blocks) {
    moves_.clear();
    if (blocks > evictable_blocks()) return moves_;
    rescore();
    for (uint32_t freed = 0; freed < blocks;) {
      const std::string path = *least(&ReferenceTree::may_leave_device);
      Node& node = nodes_.at(path);
      freed += blocks_of(path);
      policy_.evicted(Tier::kDevice, node.priority);
      const bool copied = there(node.host) || copy(path, true);
      if (copied) node.priority = policy_.priority(path, Tier::kHost);
      drop_device(path);
    }
    return moves_;
  }

  std::vector<Move> replicate(const std::string& path, bool make_room) {
    moves_.clear();
    const Node* node = find(path);
    if (node == nullptr || node->device != Residence::kReady || there(node->host)) return moves_;
    uint32_t blocks = 0;
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const std::string prefix = path.substr(0, depth);
      if (!there(nodes_.at(prefix).host)) blocks += blocks_of(prefix);
    }
    if (make_room || host_blocks() + blocks <= host_total_) copy(path, false);
    return moves_;
  }

  std::vector<Move> lose(const std::string& path, Tier tier) {
    moves_.clear();
    Node* top = find(path);
    if (top == nullptr || (tier == Tier::kDevice && top->users > 0)) return moves_;
    std::vector<std::string> below;
    for (const auto& [each, unused] : nodes_) {
      if (each.starts_with(path)) below.push_back(each);
    }
    children_first(below);
    for (const std::string& each : below) {
      Node& node = nodes_.at(each);
      if (tier == Tier::kHost && there(node.host)) drop_host(each);
      if (tier == Tier::kDevice && there(node.device)) {
        node.priority = policy_.priority(each, Tier::kHost);
        drop_device(each);
      }
    }
    std::erase_if(moves_, [&](const Move& move) { return move.id == id_of(path); });
    return moves_;
  }

  std::vector<Move> clear() {
    moves_.clear();
    std::vector<std::string> going;
    for (const auto& [path, unused] : nodes_) {
      if (!stays_at_clear(path)) going.push_back(path);
    }
    children_first(going);
    for (const std::string& path : going) {
      if (there(nodes_.at(path).host)) drop_host(path);
      if (nodes_.contains(path)) drop_device(path);
    }
    policy_.clear();
    return moves_;
  }

  void expect(const std::string& path, int change) {
    for (size_t depth = 1; depth <= path.size(); ++depth)
      expected_[path.substr(0, depth)] += change;
  }

  bool keep(const std::string& path, bool kept) {
    Node* node = find(path);
    if (node == nullptr || (node->device != Residence::kReady && !there(node->host))) return false;
    node->kept = kept;
    return true;
  }

  size_t size() const { return nodes_.size(); }
  uint32_t host_blocks() const {
    return sum([](const std::string&, const Node& node) { return there(node.host); });
  }
  uint32_t device_blocks() const {
    return sum(
        [](const std::string&, const Node& node) { return node.device == Residence::kReady; });
  }
  uint32_t evictable_blocks() const {
    return sum([](const std::string&, const Node& node) {
      return node.device == Residence::kReady && node.users == 0;
    });
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, unused] : nodes_) paths.push_back(path);
    return paths;
  }

 private:
  struct Node {
    Residence device = Residence::kNone;
    Residence host = Residence::kNone;
    uint32_t users = 0;
    bool kept = false;
    double priority = 0;
  };
  using Condition = bool (ReferenceTree::*)(const std::string&, const Node&) const;

  static bool there(Residence residence) { return residence != Residence::kNone; }
  static bool nowhere(const Node& node) { return !there(node.device) && !there(node.host); }
  Node* find(const std::string& path) {
    auto it = nodes_.find(path);
    return it == nodes_.end() ? nullptr : &it->second;
  }
  const Node* find(const std::string& path) const {
    return const_cast<ReferenceTree*>(this)->find(path);
  }
  template <typename Counts>
  uint32_t sum(Counts counts) const {
    uint32_t blocks = 0;
    for (const auto& [path, node] : nodes_) blocks += counts(path, node) ? blocks_of(path) : 0;
    return blocks;
  }
  template <typename Test>
  bool any_child(const std::string& parent, Test test) const {
    for (const auto& [path, node] : nodes_) {
      if (path.size() == parent.size() + 1 && path.starts_with(parent) && test(node)) return true;
    }
    return false;
  }
  static void children_first(std::vector<std::string>& paths) {
    std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
      return std::make_tuple(a.size(), id_of(a)) > std::make_tuple(b.size(), id_of(b));
    });
  }
  bool stays_at_clear(const std::string& top) const {
    for (const auto& [path, node] : nodes_) {
      if (path.starts_with(top) && (node.kept || node.users > 0)) return true;
    }
    return false;
  }

  bool may_leave_device(const std::string& path, const Node& node) const {
    return node.device == Residence::kReady && node.users == 0 &&
           !any_child(path, [](const Node& child) { return there(child.device); });
  }
  bool may_leave_host(const std::string& path, const Node& node) const {
    return node.device == Residence::kNone && there(node.host) && node.users == 0 &&
           !any_child(path, [](const Node&) { return true; });
  }
  bool is_free_copy(const std::string& path, const Node& node) const {
    return node.device == Residence::kReady && there(node.host) &&
           !any_child(path, [](const Node& child) { return there(child.host); }) &&
           !copying_.starts_with(path);
  }
  int class_of(const std::string& path) const {
    auto expected = expected_.find(path);
    const bool wanted = expected != expected_.end() && expected->second > 0;
    return nodes_.at(path).kept ? 2 : wanted ? 1 : 0;
  }
  std::optional<std::string> least(Condition condition) const {
    std::optional<std::string> least;
    auto rank = [this](const std::string& path) {
      return std::make_tuple(class_of(path), nodes_.at(path).priority, id_of(path));
    };
    for (const auto& [path, node] : nodes_) {
      if (!(this->*condition)(path, node)) continue;
      if (!least.has_value() || rank(path) < rank(*least)) least = path;
    }
    return least;
  }

  void rescore() {
    if (policy_.epoch() == epoch_) return;
    epoch_ = policy_.epoch();
    for (auto& [path, node] : nodes_) {
      node.priority = policy_.priority(path, there(node.device) ? Tier::kDevice : Tier::kHost);
    }
  }

  bool copy(const std::string& path, bool release_copies) {
    uint32_t blocks = 0, above = 0;
    std::vector<std::string> missing;
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const std::string prefix = path.substr(0, depth);
      const bool has_copy = there(nodes_.at(prefix).host);
      (has_copy ? above : blocks) += blocks_of(prefix);
      if (!has_copy) missing.push_back(prefix);
    }
    if (blocks + above > host_total_) return false;
    const uint32_t releasable = sum([&](const std::string& each, const Node& node) {
      const bool alone = node.device == Residence::kNone && there(node.host) && node.users == 0;
      const bool copied = node.device == Residence::kReady && there(node.host);
      return alone || (release_copies && copied && !path.starts_with(each));
    });
    if (host_total_ - host_blocks() + releasable < blocks) return false;
    double worth = policy_.priority(path, Tier::kHost);
    if (!release_copies) worth = policy_.copy_worth(worth);
    copying_ = path;
    while (host_blocks() + blocks > host_total_) {
      const auto alone = least(&ReferenceTree::may_leave_host);
      const auto copy = release_copies ? least(&ReferenceTree::is_free_copy) : std::nullopt;
      if (!alone.has_value() && !copy.has_value()) break;
      const double alone_worth = alone ? nodes_.at(*alone).priority : 0;
      const double copy_worth = copy ? policy_.copy_worth(nodes_.at(*copy).priority) : 0;
      const bool drops_copy =
          !alone || (copy && class_of(*copy) <= class_of(*alone) && copy_worth < alone_worth);
      if (!policy_.admits(worth, drops_copy ? copy_worth : alone_worth)) break;
      if (!drops_copy) policy_.evicted(Tier::kHost, alone_worth);
      drop_host(drops_copy ? *copy : *alone);
    }
    copying_.clear();
    if (host_blocks() + blocks > host_total_) return false;
    for (const std::string& each : missing) {
      moves_.push_back({Move::Kind::kReplicate, id_of(each), blocks_of(each)});
      nodes_.at(each).host = Residence::kPending;
    }
    return true;
  }

  void drop_device(const std::string& path) {
    moves_.push_back({Move::Kind::kDropDevice, id_of(path), blocks_of(path)});
    nodes_.at(path).device = Residence::kNone;
    remove_if_nowhere(path);
  }
  void drop_host(const std::string& path) {
    moves_.push_back({Move::Kind::kDropHost, id_of(path), blocks_of(path)});
    nodes_.at(path).host = Residence::kNone;
    remove_if_nowhere(path);
  }
  void remove_if_nowhere(const std::string& path) {
    const Node& node = nodes_.at(path);
    if (!nowhere(node) || node.users > 0) return;
    nodes_.erase(path);
    policy_.left(path);
  }

  ReferencePolicy& policy_;
  const uint32_t host_total_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, int> expected_;
  uint64_t epoch_ = 0;
  std::string copying_;  // its ancestors' copies stay
  std::vector<Move> moves_;
};

}  // namespace ragcache::controller
