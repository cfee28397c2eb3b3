#pragma once

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
    TreeNode* place = free_.back();
    free_.pop_back();
    return *new (place) TreeNode();
  }

  void destroy(TreeNode& node) {
    node.~TreeNode();
    free_.push_back(&node);
  }

 private:
  static constexpr size_t kSlabNodes = (size_t{4} << 20) / sizeof(TreeNode);

  void grow() {
    TreeNode* slab = slabs_.emplace_back(allocator_.allocate(kSlabNodes));
    for (size_t i = kSlabNodes; i > 0; --i) free_.push_back(slab + i - 1);
  }

  HugePageAllocator<TreeNode> allocator_;
  std::vector<TreeNode*> slabs_;
  std::vector<TreeNode*> free_;  // the last one given back is the first one used
};

}  // namespace ragcache::controller
