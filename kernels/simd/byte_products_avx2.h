#pragma once

// byte_products.h for AVX2, whose instruction for bytes adds two products of an unsigned and a
// signed one in 16 bits.

#include <cstring>
#include <type_traits>

#include "kernels/simd/lanes.h"

namespace ragcache::kernels::avx2 {

inline constexpr int kByteRows = 4;

RAG_SIMD_INLINE __m256i four_bytes(const int8_t* four) {
  int32_t bytes;
  std::memcpy(&bytes, four, sizeof(bytes));
  return _mm256_set1_epi32(bytes);
}

RAG_SIMD_INLINE __m256i load_words(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Sums of neighbours among 16 bits, as 32.
RAG_SIMD_INLINE __m256i pairs_of(__m256i words) {
  return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

RAG_SIMD_INLINE Lanes floats_less(__m256i low, __m256i high, int32_t n) {
  const __m256i offset = _mm256_set1_epi32(n);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(low, offset)),
          _mm256_cvtepi32_ps(_mm256_sub_epi32(high, offset))};
}

struct Nibbles {
  __m256i low, high;

  // A block's eight times two products, each at most 15 · 127, fit 16 bits.
  struct Products {
    __m256i low, high;

    RAG_SIMD_INLINE static Products zero() {
      return {_mm256_setzero_si256(), _mm256_setzero_si256()};
    }
    RAG_SIMD_INLINE void add(Nibbles weights, const int8_t* four) {
      const __m256i bytes = four_bytes(four);
      low = _mm256_add_epi16(low, _mm256_maddubs_epi16(weights.low, bytes));
      high = _mm256_add_epi16(high, _mm256_maddubs_epi16(weights.high, bytes));
    }
    RAG_SIMD_INLINE Lanes less(int32_t n) const {
      return floats_less(pairs_of(low), pairs_of(high), n);
    }
  };

  RAG_SIMD_INLINE static Nibbles load(const uint8_t* from, int half) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(load_words(from), 4 * half), mask),
            _mm256_and_si256(_mm256_srli_epi16(load_words(from + 32), 4 * half), mask)};
  }
};

struct SignedBytes {
  using Products = struct ByteProducts;
  static constexpr int32_t kOffset = 0;

  __m256i low, high;

  RAG_SIMD_INLINE static SignedBytes load(const uint8_t* from) {
    return {load_words(from), load_words(from + 32)};
  }
};

struct PlainBytes {
  using Products = struct ByteProducts;

  __m256i low, high;

  RAG_SIMD_INLINE static PlainBytes load(const uint8_t* from) {
    return {load_words(from), load_words(from + 32)};
  }
};

// Two products, each at most 128 · 127, fit 16 bits.
struct ByteProducts {
  __m256i low, high;

  RAG_SIMD_INLINE static ByteProducts zero() {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  template <class Weights>
  RAG_SIMD_INLINE void add(Weights weights, const int8_t* four) {
    const __m256i bytes = four_bytes(four);
    low = _mm256_add_epi32(low, pairs_of(products<Weights>(weights.low, bytes)));
    high = _mm256_add_epi32(high, pairs_of(products<Weights>(weights.high, bytes)));
  }
  RAG_SIMD_INLINE Lanes less(int32_t n) const { return floats_less(low, high, n); }

 private:
  // The first factor must be unsigned: |w| · (x with the sign of w), if x may be negative.
  template <class Weights>
  RAG_SIMD_INLINE static __m256i products(__m256i weights, __m256i bytes) {
    if constexpr (std::is_same_v<Weights, PlainBytes>) {
      return _mm256_maddubs_epi16(bytes, weights);
    } else {
      return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(bytes, weights));
    }
  }
};

RAG_SIMD_INLINE void store_bytes(Lanes whole, int8_t* to) {
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvtps_epi32(whole.low), _mm256_cvtps_epi32(whole.high)), 0xD8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

}  // namespace ragcache::kernels::avx2
