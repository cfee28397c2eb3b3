#include "services/worker/kv/block_pool.h"

#include <sys/mman.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace ragcache::worker {

absl::StatusOr<BlockPool> BlockPool::create(const kernels::KvLayout& layout, uint32_t blocks) {
  // Slots are 32-bit numbers.
  constexpr int64_t kMaxBlocks =
      std::numeric_limits<int32_t>::max() / kernels::KvLayout::kBlockTokens;
  if (blocks == 0 || blocks > kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV memory holds ", blocks, " blocks, must be 1..", kMaxBlocks));
  }
  const size_t bytes = size_t{blocks} * static_cast<size_t>(layout.block_bytes());
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV memory of ", bytes >> 20, " MiB is refused by the system"));
  }
  return BlockPool(memory, bytes, blocks);
}

BlockPool::BlockPool(void* memory, size_t bytes, uint32_t blocks)
    : BlockNumbers(std::vector<bool>(blocks, false)), memory_(memory), bytes_(bytes) {}

BlockPool::BlockPool(BlockPool&& other) noexcept
    : BlockNumbers(std::move(other)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

BlockPool::~BlockPool() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

BlockNumbers::BlockNumbers(std::vector<bool> taken) : taken_(std::move(taken)) {
  free_.reserve(total());
  for (uint32_t block = total(); block-- > 0;) {
    if (!taken_[block]) free_.push_back(static_cast<int32_t>(block));
  }
}

int32_t BlockNumbers::take() {
  RAG_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  RAG_CHECK(!taken_[block]);
  taken_[block] = true;
  return block;
}

std::vector<int32_t> BlockNumbers::take(size_t count) {
  std::vector<int32_t> blocks(count);
  for (int32_t& block : blocks) block = take();
  return blocks;
}

void BlockNumbers::give_back(int32_t block) {
  RAG_CHECK(block >= 0 && static_cast<size_t>(block) < taken_.size() && taken_[block]);
  taken_[block] = false;
  free_.push_back(block);
}

void BlockNumbers::give_back(const std::vector<int32_t>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) give_back(*block);
}

}  // namespace ragcache::worker
