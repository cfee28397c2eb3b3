#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "kernels/kv_layout/kv_layout.h"
#include "services/worker/kv/segment_table.h"

namespace ragcache::worker {

// The host tier's memory: one shared-memory file that outlives the process, so that a worker that
// was killed finds its copies again.
//
//   header      what the file is for: magic, version, model, layout, number of blocks; checksum
//   directory   one entry a block; entry b describes the segment whose first block is b
//   chain       next block of each block
//   checksums   [blocks][n_layers]: of each block's layer
//   blocks      as kernels::KvLayout has them
//
// A copy is there if its entry is marked as committed. The mark is written after everything else,
// and taken away before any of its blocks is written again; so whatever moment a process dies at,
// what is marked is whole. An entry's checksum covers its fields and its chain.
//
// Which blocks are free is not the arena's to know: the engine gives each copy its blocks. Used by
// the thread that copies; open() and recovered() before that thread starts.
class HostArena {
 public:
  struct Entry {
    SegmentKey key;
    std::vector<int32_t> blocks;
  };

  // Takes over the file if it is one of this model, layout and size, else makes it anew, which is
  // logged with the reason. UNAVAILABLE if another process has it; RESOURCE_EXHAUSTED if its file
  // system has no room for it: all of it is allocated here, never when it is first written.
  static absl::StatusOr<HostArena> open(const std::string& path, const Digest& model_fingerprint,
                                        const kernels::KvLayout& layout, uint32_t blocks);
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&&) = delete;
  ~HostArena();

  // Of the whole file.
  static uint64_t file_bytes(const kernels::KvLayout& layout, uint32_t blocks);

  // Copies that an earlier process left, parents before children, each with its ancestors.
  const std::vector<Entry>& recovered() const { return recovered_; }
  // Entries of the directory that were not whole or not consistent, and are free now.
  uint32_t skipped() const { return skipped_; }

  uint32_t blocks() const { return blocks_; }
  uint8_t* block(int32_t block) const;
  // Of the block's layers. [n_layers]
  std::span<uint64_t> checksums(int32_t block) const;

  // Writes the entry and its chain, not yet committed. REQUIRES: its blocks are in no other entry.
  void begin(const Entry& entry);
  // From here on it outlives the process. REQUIRES: begun, and its blocks are written.
  void commit(const Entry& entry);
  void erase(const Entry& entry);
  // Whether it is committed.
  bool has(const Entry& entry) const;

 private:
  struct Header;
  struct DirectoryEntry;

  HostArena(std::string path, int descriptor, const kernels::KvLayout& layout, uint32_t blocks);
  absl::Status map();
  // Why the file as it is cannot be taken over; empty: it can.
  std::string check(const Header& expected) const;
  absl::Status make(const Header& header);
  void recover();
  DirectoryEntry& directory(int32_t block) const;
  int32_t& next(int32_t block) const;
  uint64_t checksum(const DirectoryEntry& entry, std::span<const int32_t> blocks) const;

  // Constant after construction.
  std::string path_;
  int descriptor_;
  kernels::KvLayout layout_;
  uint32_t blocks_;
  uint8_t* memory_ = nullptr;
  std::vector<Entry> recovered_;
  uint32_t skipped_ = 0;
};

// XXH3, 64 bits.
uint64_t checksum_of(std::span<const uint8_t> bytes);

}  // namespace ragcache::worker
