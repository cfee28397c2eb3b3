#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.h"
#include "common/huge_pages.h"
#include "services/controller/tree/node.h"

namespace ragcache::controller {

// The nodes that may go for one reason, least valuable first: those that an operator keeps go last,
// before them those that a waiting request expects; then by priority, ties by id. A heap whose
// nodes know their places, so that any of them leaves in O(log n); of four children a node, for
// fewer cache misses.
//
// A node's rank (kept, expected, priority) must not change while it is in here, but for reorder().
class Candidates {
 public:
  explicit Candidates(CandidateKind kind) : kind_(static_cast<size_t>(kind)) {}

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  bool contains(const TreeNode& node) const { return node.places[kind_] != TreeNode::kNoPlace; }
  // REQUIRES: !empty().
  TreeNode& least() const { return *heap_.front().node; }

  void insert(TreeNode& node) {
    RAG_CHECK(!contains(node));
    heap_.push_back({rank_of(node), node.priority, &node});
    rise(heap_.size() - 1);
  }

  void erase(TreeNode& node) {
    const size_t place = node.places[kind_];
    RAG_CHECK(place < heap_.size() && heap_[place].node == &node);
    node.places[kind_] = TreeNode::kNoPlace;
    const Item last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    put(place, last);
    rise(place);
    sink(last.node->places[kind_]);
  }

  // After the nodes' ranks have changed, all at once. O(n).
  void reorder() {
    for (Item& item : heap_) item = {rank_of(*item.node), item.node->priority, item.node};
    for (size_t place = heap_.size(); place-- > 0;) sink(place);
  }

  // Whether the order holds, for tests. O(n).
  bool ordered() const {
    for (size_t i = 1; i < heap_.size(); ++i) {
      if (before(heap_[i], heap_[(i - 1) / kArity])) return false;
    }
    return true;
  }

  static uint32_t rank_of(const TreeNode& node) {
    return node.kept ? 2 : node.expected > 0 ? 1 : 0;
  }

 private:
  static constexpr size_t kArity = 4;

  struct Item {
    uint32_t rank;  // copies: comparing does not touch the nodes
    double priority;
    TreeNode* node;
  };

  static bool before(const Item& a, const Item& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.node->id < b.node->id;
  }

  void put(size_t place, const Item& item) {
    heap_[place] = item;
    item.node->places[kind_] = static_cast<uint32_t>(place);
  }

  void rise(size_t place) {
    const Item item = heap_[place];
    while (place > 0 && before(item, heap_[(place - 1) / kArity])) {
      put(place, heap_[(place - 1) / kArity]);
      place = (place - 1) / kArity;
    }
    put(place, item);
  }

  void sink(size_t place) {
    const Item item = heap_[place];
    for (;;) {
      const size_t begin = place * kArity + 1;
      const size_t end = std::min(begin + kArity, heap_.size());
      size_t least = begin;
      for (size_t child = begin + 1; child < end; ++child) {
        if (before(heap_[child], heap_[least])) least = child;
      }
      if (begin >= end || !before(heap_[least], item)) break;
      put(place, heap_[least]);
      place = least;
    }
    put(place, item);
  }

  const size_t kind_;
  std::vector<Item, HugePageAllocator<Item>> heap_;
};

}  // namespace ragcache::controller
