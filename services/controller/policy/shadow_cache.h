#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace ragcache::controller {

// A cache of names only, which shows what hits some way of scoring would have had: of the nodes
// asked for it keeps those of the highest scores, as many as its capacity in tokens allows.
class ShadowCache {
 public:
  // The node is asked for, and from now on has this score. Whether it was there.
  bool access(const SegmentId& id, uint32_t tokens, double score) {
    const auto [it, is_new] = nodes_.try_emplace(id);
    if (is_new) {
      tokens_ += tokens;
    } else {
      order_.erase({it->second.score, id});
    }
    it->second = {score, tokens};
    order_.emplace(score, id);
    shrink();
    return !is_new;
  }

  void set_capacity(uint64_t tokens) {
    capacity_ = tokens;
    shrink();
  }

  void erase_if(const std::function<bool(const SegmentId& id)>& condition) {
    for (auto it = order_.begin(); it != order_.end();) {
      it = condition(it->second) ? erase(it) : std::next(it);
    }
  }

  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    double score = 0;
    uint32_t tokens = 0;
  };
  using Order = std::set<std::pair<double, SegmentId>>;

  Order::iterator erase(Order::iterator place) {
    auto node = nodes_.find(place->second);
    tokens_ -= node->second.tokens;
    nodes_.erase(node);
    return order_.erase(place);
  }

  void shrink() {
    while (tokens_ > capacity_) erase(order_.begin());
  }

  uint64_t capacity_ = 0;
  uint64_t tokens_ = 0;
  absl::flat_hash_map<SegmentId, Node> nodes_;
  Order order_;
};

}  // namespace ragcache::controller
