#pragma once

// byte_products.h for AVX-512 with VNNI: one instruction adds four products of an unsigned and a
// signed byte to 32 bits.

#include <cstring>

#include "kernels/simd/lanes.h"

namespace ragcache::kernels::avx512 {

// 16 sums, 8 registers of weights and two of scale and minimum leave six.
inline constexpr int kByteRows = 16;

struct ByteProducts {
  __m512i sums;

  RAG_SIMD_INLINE static ByteProducts zero() { return {_mm512_setzero_si512()}; }
  RAG_SIMD_INLINE void add_unsigned(__m512i weights, const int8_t* four) {
    int32_t bytes;
    std::memcpy(&bytes, four, sizeof(bytes));
    sums = _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32(bytes));
  }
  RAG_SIMD_INLINE Lanes less(int32_t n) const {
    return {_mm512_cvtepi32_ps(_mm512_sub_epi32(sums, _mm512_set1_epi32(n)))};
  }
};

struct Nibbles {
  __m512i bytes;

  struct Products : ByteProducts {
    RAG_SIMD_INLINE static Products zero() { return {ByteProducts::zero()}; }
    RAG_SIMD_INLINE void add(Nibbles weights, const int8_t* four) {
      add_unsigned(weights.bytes, four);
    }
  };

  // The low (0) or high (1) nibbles of 64 bytes.
  RAG_SIMD_INLINE static Nibbles load(const uint8_t* from, int half) {
    const __m512i words = _mm512_srli_epi16(_mm512_loadu_si512(from), 4 * half);
    return {_mm512_and_si512(words, _mm512_set1_epi8(15))};
  }
};

struct SignedBytes {
  static constexpr int32_t kOffset = 128;

  __m512i bytes;

  struct Products : ByteProducts {
    RAG_SIMD_INLINE static Products zero() { return {ByteProducts::zero()}; }
    RAG_SIMD_INLINE void add(SignedBytes weights, const int8_t* four) {
      add_unsigned(weights.bytes, four);
    }
  };

  RAG_SIMD_INLINE static SignedBytes load(const uint8_t* from) {
    return {_mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128))};
  }
};

RAG_SIMD_INLINE Lanes rounded(Lanes lanes) {
  return {_mm512_roundscale_ps(lanes.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

RAG_SIMD_INLINE void store_bytes(Lanes whole, int8_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_maskz_cvtepi32_epi8(0xFFFF, _mm512_cvtps_epi32(whole.x)));
}

}  // namespace ragcache::kernels::avx512
