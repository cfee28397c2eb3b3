#pragma once

// lanes.h for AVX2.

#include <algorithm>
#include <cstdint>

#include "kernels/half/half.h"
#include "kernels/simd/avx2.h"

#define RAG_SIMD_NAMESPACE avx2
#define RAG_SIMD RAG_AVX2
#define RAG_SIMD_INLINE RAG_AVX2_INLINE

namespace ragcache::kernels::avx2 {

// 12 of 16 registers hold sums, two the panel's values and one a row's.
inline constexpr int kTileRows = 6;
inline constexpr int kTilePanels = 1;

struct Lanes {
  __m256 low, high;

  RAG_SIMD_INLINE static Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  RAG_SIMD_INLINE static Lanes all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  RAG_SIMD_INLINE static Lanes load(const float* from) {
    return {load_lanes(from), load_lanes(from + 8)};
  }
  RAG_SIMD_INLINE static Lanes load(const Half* from) {
    return {load_lanes(from), load_lanes(from + 8)};
  }
  // The first `count` only, zeros after them; count in [0, 16].
  RAG_SIMD_INLINE static Lanes load_first(int64_t count, const float* from) {
    return {_mm256_maskload_ps(from, first_lanes(std::min<int64_t>(count, 8))),
            _mm256_maskload_ps(from + 8, first_lanes(std::max<int64_t>(count - 8, 0)))};
  }
  // Bits 4 · i to 4 · i + 3 of each of 16 words.
  RAG_SIMD_INLINE static Lanes nibbles(const uint32_t* words, int i) {
    return {load_nibbles(words, i), load_nibbles(words + 8, i)};
  }
  // Byte i, lowest first, of each of 16 words, as a signed number.
  RAG_SIMD_INLINE static Lanes signed_bytes(const uint32_t* words, int i) {
    return {load_signed_bytes(words, i), load_signed_bytes(words + 8, i)};
  }

  RAG_SIMD_INLINE void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  // The first `count` only; count in [0, 16].
  RAG_SIMD_INLINE void store_first(int64_t count, float* to) const {
    _mm256_maskstore_ps(to, first_lanes(std::min<int64_t>(count, 8)), low);
    _mm256_maskstore_ps(to + 8, first_lanes(std::max<int64_t>(count - 8, 0)), high);
  }

 private:
  RAG_SIMD_INLINE static __m256 load_signed_bytes(const uint32_t* words, int i) {
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(eight, 24 - 8 * i), 24));
  }
  RAG_SIMD_INLINE static __m256 load_nibbles(const uint32_t* words, int i) {
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(eight, 4 * i), _mm256_set1_epi32(15)));
  }
};

RAG_SIMD_INLINE Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
RAG_SIMD_INLINE Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
RAG_SIMD_INLINE Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
RAG_SIMD_INLINE Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
RAG_SIMD_INLINE Lanes min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
RAG_SIMD_INLINE Lanes max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
// a · b + c, rounded once.
RAG_SIMD_INLINE Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// To the nearest whole number, ties to even.
RAG_SIMD_INLINE Lanes rounded(Lanes x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
RAG_SIMD_INLINE __m256 add_to_exponents(__m256 x, __m256 n) {
  const __m256i exponents = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponents));
}
// x · 2^n for whole n, by adding to the exponent.
RAG_SIMD_INLINE Lanes add_to_exponents(Lanes x, Lanes n) {
  return {add_to_exponents(x.low, n.low), add_to_exponents(x.high, n.high)};
}
RAG_SIMD_INLINE float max_of(Lanes x) { return max_lanes(_mm256_max_ps(x.low, x.high)); }
RAG_SIMD_INLINE float sum_of(Lanes x) { return sum_lanes(_mm256_add_ps(x.low, x.high)); }

}  // namespace ragcache::kernels::avx2
