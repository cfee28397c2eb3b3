#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "common/huge_pages.h"
#include "services/controller/tree/node.h"

namespace ragcache::controller {

// Where a tree's nodes lie: close together, on huge pages where there are some. The place of one
// that is gone is the next one's. REQUIRES: every node is destroyed before the pool.
class NodePool {
 public:
  NodePool() = default;
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;
  ~NodePool() {
    for (TreeNode* slab : slabs_) allocator_.deallocate(slab, kSlabNodes);
  }

  TreeNode& make() {
    if (free_.empty()) grow();
    const uint32_t number = free_.back();
    free_.pop_back();
    TreeNode& node = *new (&at(number)) TreeNode();
    node.number = number;
    return node;
  }

  void destroy(TreeNode& node) {
    free_.push_back(node.number);
    node.~TreeNode();
  }

  TreeNode& at(uint32_t number) const { return slabs_[number / kSlabNodes][number % kSlabNodes]; }

 private:
  static constexpr uint32_t kSlabNodes = (uint32_t{4} << 20) / sizeof(TreeNode);

  void grow() {
    const auto first = static_cast<uint32_t>(slabs_.size()) * kSlabNodes;
    slabs_.push_back(allocator_.allocate(kSlabNodes));
    for (uint32_t i = kSlabNodes; i > 0; --i) free_.push_back(first + i - 1);
  }

  HugePageAllocator<TreeNode> allocator_;
  std::vector<TreeNode*> slabs_;
  std::vector<uint32_t> free_;  // the last one given back is the first one used
};

}  // namespace ragcache::controller
