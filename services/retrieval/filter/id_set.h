#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

// A set of vector ids, a bit for each id from the least to the greatest. Not for concurrent
// changes.
class IdSet final : public IdFilter {
 public:
  bool allows(int64_t id) const override {
    const uint64_t bit = static_cast<uint64_t>(id - base_);
    return bit / kWordBits < words_.size() && (words_[bit / kWordBits] >> (bit % kWordBits) & 1);
  }

  // REQUIRES of insert(): id > 0.
  void insert(int64_t id);
  void erase(int64_t id);
  IdSet& operator&=(const IdSet& other);
  IdSet& subtract(const IdSet& other);

  bool empty() const;
  size_t size() const;

  // Bit i of word w is the id base() + 64 * w + i.
  int64_t base() const { return base_; }
  std::span<const uint64_t> words() const { return words_; }
  IdSet() = default;
  IdSet(int64_t base, std::vector<uint64_t> words) : base_(base), words_(std::move(words)) {}

 private:
  static constexpr int64_t kWordBits = 64;

  uint64_t word_at(int64_t base) const;

  int64_t base_ = 0;  // a multiple of kWordBits
  std::vector<uint64_t> words_;
};

}  // namespace ragcache::retrieval
