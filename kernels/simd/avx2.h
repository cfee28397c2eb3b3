#pragma once

// Building blocks of the AVX2 kernels. Every function carries its own target, so that a unit
// that includes this compiles for the baseline processor, and callers check has_avx2() first.

#include <immintrin.h>

#include <cstdint>

#define RAG_AVX2 __attribute__((target("avx2,fma,f16c")))
#define RAG_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace ragcache::kernels {

// All-ones in the first `count` of 8 lanes, for maskload and maskstore; count in [0, 8].
RAG_AVX2_INLINE __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// 8 elements as floats.
RAG_AVX2_INLINE __m256 load_lanes(const float* from) { return _mm256_loadu_ps(from); }
RAG_AVX2_INLINE __m256 load_lanes(const uint16_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

// Stores floats as 8 elements.
RAG_AVX2_INLINE void store_lanes(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
RAG_AVX2_INLINE void store_lanes(uint16_t* halves, __m256 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(halves),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

RAG_AVX2_INLINE float sum_lanes(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  half = _mm_add_ss(half, _mm_movehdup_ps(half));
  return _mm_cvtss_f32(half);
}

RAG_AVX2_INLINE float max_lanes(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  half = _mm_max_ss(half, _mm_movehdup_ps(half));
  return _mm_cvtss_f32(half);
}

// exp(x) to about 2 ulp; 0 below -87, so that exp(-infinity) is 0; x is capped at 88.
// Range reduction by ln 2 in two parts and the degree-5 minimax polynomial of Cephes' expf.
RAG_AVX2_INLINE __m256 exp_lanes(__m256 x) {
  const __m256 in_range = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_GE_OQ);
  x = _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(88.0f)), _mm256_set1_ps(-87.0f));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(power)), in_range);
}

}  // namespace ragcache::kernels
