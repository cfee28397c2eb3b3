#pragma once

// lanes.h for AVX-512 (kernels/simd/cpu.h tells which parts of it).

#include <cstdint>

#include "kernels/half/half.h"
#include "kernels/simd/avx2.h"

#define RAG_SIMD_NAMESPACE avx512
#define RAG_AVX512_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define RAG_SIMD __attribute__((target(RAG_AVX512_TARGET)))
#define RAG_SIMD_INLINE __attribute__((target(RAG_AVX512_TARGET), always_inline)) inline

namespace ragcache::kernels::avx512 {

// 24 of 32 registers hold sums. Two panels, so that a row's value, which is loaded for each
// multiplication as a part of it, is loaded for two: one would load more than multiply.
inline constexpr int kTileRows = 12;
inline constexpr int kTilePanels = 2;

struct Lanes {
  __m512 x;

  RAG_SIMD_INLINE static Lanes zero() { return {_mm512_setzero_ps()}; }
  RAG_SIMD_INLINE static Lanes all(float x) { return {_mm512_set1_ps(x)}; }
  RAG_SIMD_INLINE static Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
  RAG_SIMD_INLINE static Lanes load(const Half* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  RAG_SIMD_INLINE static Lanes load_first(int64_t count, const float* from) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from)};
  }
  RAG_SIMD_INLINE static Lanes nibbles(const uint32_t* words, int i) {
    const __m512i shifted = _mm512_srli_epi32(_mm512_loadu_si512(words), 4 * i);
    return {_mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(15)))};
  }
  RAG_SIMD_INLINE static Lanes signed_bytes(const uint32_t* words, int i) {
    const __m512i highest = _mm512_slli_epi32(_mm512_loadu_si512(words), 24 - 8 * i);
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(highest, 24))};
  }

  RAG_SIMD_INLINE void store(float* to) const { _mm512_storeu_ps(to, x); }
  RAG_SIMD_INLINE void store_first(int64_t count, float* to) const {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), x);
  }
};

RAG_SIMD_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.x, b.x)}; }
RAG_SIMD_INLINE Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.x, b.x, c.x)};
}
RAG_SIMD_INLINE Lanes rounded(Lanes lanes) {
  return {_mm512_roundscale_ps(lanes.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
RAG_SIMD_INLINE Lanes add_to_exponents(Lanes lanes, Lanes n) {
  const __m512i exponents = _mm512_slli_epi32(_mm512_cvtps_epi32(n.x), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(lanes.x), exponents))};
}
// Lanes 0 to 7, or 8 to 15. (GCC 12 warns of the forms without a mask.)
template <int kHalf>
RAG_SIMD_INLINE __m256 half_of(Lanes lanes) {
  return _mm512_maskz_extractf32x8_ps(0xFF, lanes.x, kHalf);
}
RAG_SIMD_INLINE float max_of(Lanes x) {
  return max_lanes(_mm256_max_ps(half_of<0>(x), half_of<1>(x)));
}
RAG_SIMD_INLINE float sum_of(Lanes x) {
  return sum_lanes(_mm256_add_ps(half_of<0>(x), half_of<1>(x)));
}

}  // namespace ragcache::kernels::avx512
