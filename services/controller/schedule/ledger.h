#pragma once

#include <cstdint>

#include "common/check.h"

namespace ragcache::controller {

// The one count of a tier's blocks: free + reserved + cached = total, at all times. Owned by a
// GroupActor; the worker allocates only what is reserved here.
class BlockLedger {
 public:
  explicit BlockLedger(uint32_t total = 0) : total_(total), free_(total) {}

  // REQUIRES: enough blocks in the account they come from.
  void reserve(uint32_t blocks) { move(free_, reserved_, blocks); }
  void unreserve(uint32_t blocks) { move(reserved_, free_, blocks); }
  void cache_reserved(uint32_t blocks) { move(reserved_, cached_, blocks); }
  void cache_free(uint32_t blocks) { move(free_, cached_, blocks); }
  void uncache(uint32_t blocks) { move(cached_, free_, blocks); }

  uint32_t total() const { return total_; }
  uint32_t free() const { return free_; }
  uint32_t reserved() const { return reserved_; }
  uint32_t cached() const { return cached_; }

 private:
  static void move(uint32_t& from, uint32_t& to, uint32_t blocks) {
    RAG_CHECK(from >= blocks);
    from -= blocks;
    to += blocks;
  }

  uint32_t total_;
  uint32_t free_;
  uint32_t reserved_ = 0;
  uint32_t cached_ = 0;
};

}  // namespace ragcache::controller
