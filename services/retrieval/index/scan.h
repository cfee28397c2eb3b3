#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/retrieval/index/vector_index.h"

// What scans of vectors are made of. A product has the same bits for a query and a row wherever the
// row lies and whatever is scanned with it: indexes over parts of a corpus agree.
namespace ragcache::retrieval {

float inner_product(std::span<const float> query, const float* row);     // [query.size()]
float inner_product(std::span<const float> query, const uint16_t* row);  // halves
float inner_product(std::span<const float> query, const uint8_t* row);   // whole numbers

// The best so many of the vectors that are offered, in no order.
class BestHits {
 public:
  BestHits(size_t count, std::vector<VectorHit>& hits) : count_(count), hits_(hits) {}

  void offer(float score, int64_t id) {
    if (hits_.size() == count_ && score <= hits_.front().score) return;
    replace_last(score, id);
  }

 private:
  void replace_last(float score, int64_t id);

  const size_t count_;
  std::vector<VectorHit>& hits_;  // a heap, the last of them first
};

}  // namespace ragcache::retrieval
