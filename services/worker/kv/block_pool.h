#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kv_layout/kv_layout.h"

namespace ragcache::worker {

// The KV memory: a fixed number of blocks of kernels::KvLayout, and which of them are taken. Pages
// are touched only when a block is first written. Owned by the engine; not thread safe.
class BlockPool {
 public:
  // RESOURCE_EXHAUSTED if the address space is refused.
  static absl::StatusOr<BlockPool> create(const kernels::KvLayout& layout, uint32_t blocks);
  BlockPool(BlockPool&& other) noexcept;
  BlockPool& operator=(BlockPool&&) = delete;
  ~BlockPool();

  // REQUIRES: free() > 0; the ledger promises it.
  int32_t take();
  // REQUIRES: the block is taken.
  void give_back(int32_t block);
  void give_back(const std::vector<int32_t>& blocks);

  uint32_t total() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  void* memory() const { return memory_; }

 private:
  BlockPool(void* memory, size_t bytes, uint32_t blocks);

  void* memory_;
  size_t bytes_;
  std::vector<int32_t> free_;  // a stack: what was used last is warm
  std::vector<bool> taken_;
};

}  // namespace ragcache::worker
