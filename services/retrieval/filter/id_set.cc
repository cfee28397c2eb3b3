#include "services/retrieval/filter/id_set.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace ragcache::retrieval {

void IdSet::insert(int64_t id) {
  RAG_CHECK(id > 0);
  const int64_t base = id / kWordBits * kWordBits;
  if (words_.empty()) base_ = base;
  if (base < base_) {
    words_.insert(words_.begin(), static_cast<size_t>((base_ - base) / kWordBits), 0);
    base_ = base;
  }
  const auto word = static_cast<size_t>((base - base_) / kWordBits);
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= uint64_t{1} << (id % kWordBits);
}

void IdSet::erase(int64_t id) {
  if (!allows(id)) return;
  words_[static_cast<size_t>((id - base_) / kWordBits)] &= ~(uint64_t{1} << (id % kWordBits));
}

// The word for the ids from `base`, a multiple of kWordBits.
uint64_t IdSet::word_at(int64_t base) const {
  if (base < base_) return 0;
  const auto word = static_cast<size_t>((base - base_) / kWordBits);
  return word < words_.size() ? words_[word] : 0;
}

IdSet& IdSet::operator&=(const IdSet& other) {
  for (size_t i = 0; i < words_.size(); ++i) {
    words_[i] &= other.word_at(base_ + static_cast<int64_t>(i) * kWordBits);
  }
  return *this;
}

IdSet& IdSet::subtract(const IdSet& other) {
  for (size_t i = 0; i < words_.size(); ++i) {
    words_[i] &= ~other.word_at(base_ + static_cast<int64_t>(i) * kWordBits);
  }
  return *this;
}

bool IdSet::empty() const {
  return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
}

size_t IdSet::size() const {
  size_t size = 0;
  for (const uint64_t word : words_) size += static_cast<size_t>(std::popcount(word));
  return size;
}

}  // namespace ragcache::retrieval
