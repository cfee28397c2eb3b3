#include "services/retrieval/index/scan.h"

#include <algorithm>

#include "kernels/half/half.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::retrieval {
namespace {

using kernels::load_lanes;

RAG_AVX2_INLINE __m256 load_lanes(const uint8_t* from) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

inline float widen(uint8_t value) { return value; }
using kernels::widen;

// Four sums at once hide how long an addition takes.
template <typename Element>
RAG_AVX2 float inner_product_avx2(std::span<const float> query, const Element* row) {
  constexpr size_t kLanes = 8, kChains = 4;
  __m256 sums[kChains] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                          _mm256_setzero_ps()};
  const size_t size = query.size();
  size_t i = 0;
  for (; i + kChains * kLanes <= size; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (size_t chain = 0; chain < kChains; ++chain) {
      const size_t at = i + chain * kLanes;
      sums[chain] =
          _mm256_fmadd_ps(load_lanes(query.data() + at), load_lanes(row + at), sums[chain]);
    }
  }
  for (; i + kLanes <= size; i += kLanes) {
    sums[0] = _mm256_fmadd_ps(load_lanes(query.data() + i), load_lanes(row + i), sums[0]);
  }
  float sum = kernels::sum_lanes(
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  for (; i < size; ++i) sum += query[i] * widen(row[i]);
  return sum;
}

template <typename Element>
float inner_product_of(std::span<const float> query, const Element* row) {
  if (kernels::has_avx2()) return inner_product_avx2(query, row);
  float sum = 0;
  for (size_t i = 0; i < query.size(); ++i) sum += query[i] * widen(row[i]);
  return sum;
}

bool is_better(const VectorHit& a, const VectorHit& b) { return a.score > b.score; }

}  // namespace

float inner_product(std::span<const float> query, const float* row) {
  return inner_product_of(query, row);
}

float inner_product(std::span<const float> query, const uint16_t* row) {
  return inner_product_of(query, row);
}

float inner_product(std::span<const float> query, const uint8_t* row) {
  return inner_product_of(query, row);
}

void BestHits::replace_last(float score, int64_t id) {
  if (hits_.size() == count_) {
    std::ranges::pop_heap(hits_, is_better);
    hits_.pop_back();
  }
  hits_.push_back({score, id, score});
  std::ranges::push_heap(hits_, is_better);
}

}  // namespace ragcache::retrieval
