#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/check.h"
#include "common/huge_pages.h"
#include "services/controller/tree/node.h"
#include "services/controller/tree/node_pool.h"

namespace ragcache::controller {

// The nodes that may go for one reason, least valuable first: those that an operator keeps go last,
// before them those that a waiting request expects; then by priority, ties by id. A heap that
// knows each node's place, so that any of them leaves in O(log n).
//
// What it costs is cache misses, so it does not touch the nodes: it has what they are ordered by,
// and their places, by number, in a table of their own. It has four children a node, in one line of
// the cache (LaMarca and Ladner, The Influence of Caches on the Performance of Heaps, 1996).
//
// A node's rank (kept, expected) and priority must not change while it is in here, but for
// reorder().
class Candidates {
 public:
  // `pool` has the nodes, and outlives this.
  explicit Candidates(const NodePool& pool) : pool_(pool) {}

  bool empty() const { return size() == 0; }
  size_t size() const { return heap_.size() - kRoot; }
  bool contains(const TreeNode& node) const {
    return node.number < places_.size() && places_[node.number] != kNoPlace;
  }
  // REQUIRES: !empty().
  TreeNode& least() const { return pool_.at(heap_[kRoot].number); }

  void insert(const TreeNode& node) {
    RAG_CHECK(!contains(node));
    if (node.number >= places_.size()) places_.resize(node.number + 1, kNoPlace);
    heap_.push_back(item_of(node));
    rise(heap_.size() - 1);
  }

  // The node may have changed by now.
  void erase(const TreeNode& node) {
    RAG_CHECK(contains(node));
    const size_t place = places_[node.number];
    RAG_CHECK(place < heap_.size() && heap_[place].number == node.number);
    places_[node.number] = kNoPlace;
    const Item last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    put(place, last);
    rise(place);
    sink(places_[last.number]);
  }

  // After the nodes' ranks have changed, all at once. O(n).
  void reorder() {
    for (size_t place = kRoot; place < heap_.size(); ++place) {
      heap_[place] = item_of(pool_.at(heap_[place].number));
    }
    for (size_t place = heap_.size(); place-- > kRoot;) sink(place);
  }

  // Whether the order holds, and nodes are as they were when they came; for tests. O(n).
  bool ordered() const {
    for (size_t place = kRoot; place < heap_.size(); ++place) {
      const Item& item = heap_[place];
      if (item != item_of(pool_.at(item.number)) || places_[item.number] != place) return false;
      if (place > kRoot && before(item, heap_[parent_of(place)])) return false;
    }
    return true;
  }

  static uint32_t rank_of(const TreeNode& node) {
    return node.kept ? 2 : node.expected > 0 ? 1 : 0;
  }

 private:
  // The root stands fourth, so that the children of each, four items of 16 bytes, share a line.
  static constexpr size_t kRoot = 3;
  static constexpr size_t kArity = 4;
  static constexpr uint32_t kNoPlace = std::numeric_limits<uint32_t>::max();

  struct Item {
    double priority = 0;
    uint32_t rank_and_id = 0;  // the rank in two bits, then those that the id begins with
    uint32_t number = 0;
    bool operator==(const Item&) const = default;
  };
  static_assert(sizeof(Item) == 16);

  static size_t parent_of(size_t place) { return place / kArity + kRoot - 1; }
  static size_t first_child_of(size_t place) { return (place - kRoot + 1) * kArity; }

  static Item item_of(const TreeNode& node) {
    const auto& bytes = node.id.bytes;
    const uint32_t id = uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
                        uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
    return {node.priority, rank_of(node) << 30 | id >> 2, node.number};
  }

  bool before(const Item& a, const Item& b) const {
    const uint32_t a_rank = a.rank_and_id >> 30, b_rank = b.rank_and_id >> 30;
    if (a_rank != b_rank) return a_rank < b_rank;
    if (a.priority != b.priority) return a.priority < b.priority;
    if (a.rank_and_id != b.rank_and_id) return a.rank_and_id < b.rank_and_id;
    return pool_.at(a.number).id < pool_.at(b.number).id;
  }

  void put(size_t place, const Item& item) {
    heap_[place] = item;
    places_[item.number] = static_cast<uint32_t>(place);
  }

  void rise(size_t place) {
    const Item item = heap_[place];
    while (place > kRoot && before(item, heap_[parent_of(place)])) {
      put(place, heap_[parent_of(place)]);
      place = parent_of(place);
    }
    put(place, item);
  }

  void sink(size_t place) {
    const Item item = heap_[place];
    for (;;) {
      const size_t begin = first_child_of(place);
      const size_t end = std::min(begin + kArity, heap_.size());
      if (begin >= end) break;
      size_t least = begin;
      for (size_t child = begin + 1; child < end; ++child) {
        if (before(heap_[child], heap_[least])) least = child;
      }
      if (!before(heap_[least], item)) break;
      put(place, heap_[least]);
      place = least;
    }
    put(place, item);
  }

  const NodePool& pool_;
  std::vector<Item, HugePageAllocator<Item>> heap_ = decltype(heap_)(kRoot);
  std::vector<uint32_t, HugePageAllocator<uint32_t>> places_;  // in heap_, by the nodes' numbers
};

}  // namespace ragcache::controller
