#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kv_layout/kv_layout.h"

namespace ragcache::worker {

// Blocks that the tokens of a segment, or of a request's own part, take: each begins a new one.
inline uint32_t blocks_of(size_t tokens) {
  constexpr size_t kBlockTokens = kernels::KvLayout::kBlockTokens;
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

// Which of a fixed number of blocks are taken. Not thread safe.
class BlockNumbers {
 public:
  explicit BlockNumbers(std::vector<bool> taken);

  // REQUIRES: free() > 0.
  int32_t take();
  std::vector<int32_t> take(size_t count);
  // REQUIRES: the block is taken.
  void give_back(int32_t block);
  void give_back(const std::vector<int32_t>& blocks);

  uint32_t total() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<int32_t> free_;  // a stack: what was used last is warm
  std::vector<bool> taken_;
};

// The device's KV memory: a fixed number of blocks of kernels::KvLayout, and which of them are
// taken. Pages are touched only when a block is first written. Owned by the engine; not thread
// safe.
class BlockPool : public BlockNumbers {
 public:
  // RESOURCE_EXHAUSTED if the address space is refused.
  static absl::StatusOr<BlockPool> create(const kernels::KvLayout& layout, uint32_t blocks);
  BlockPool(BlockPool&& other) noexcept;
  BlockPool& operator=(BlockPool&&) = delete;
  ~BlockPool();

  void* memory() const { return memory_; }

 private:
  BlockPool(void* memory, size_t bytes, uint32_t blocks);

  void* memory_;
  size_t bytes_;
};

}  // namespace ragcache::worker
