#pragma once

// byte_products.h for AVX-512 with VNNI: one instruction adds four products of an unsigned and a
// signed byte to 32 bits.

#include <cstring>
#include <type_traits>

#include "kernels/simd/lanes.h"

namespace ragcache::kernels::avx512 {

// 16 sums, 8 registers of weights and two of scale and minimum leave six.
inline constexpr int kByteRows = 16;

RAG_SIMD_INLINE __m512i four_bytes(const int8_t* four) {
  int32_t bytes;
  std::memcpy(&bytes, four, sizeof(bytes));
  return _mm512_set1_epi32(bytes);
}

struct PlainBytes;

struct ByteProducts {
  // As what they are: GCC copies sums of the general type __m512i in every turn of a loop.
  typedef int32_t Sums __attribute__((vector_size(64)));
  Sums sums;

  RAG_SIMD_INLINE static ByteProducts zero() { return {Sums(_mm512_setzero_si512())}; }
  template <class Weights>
  RAG_SIMD_INLINE void add(Weights weights, const int8_t* four) {
    if constexpr (std::is_same_v<Weights, PlainBytes>) {
      sums = Sums(_mm512_dpbusd_epi32(__m512i(sums), four_bytes(four), weights.bytes));
    } else {
      // Its third factor from memory, for all lanes: GCC 12 loads it by an instruction of its own.
      asm("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums)
          : "v"(weights.bytes), "m"(*reinterpret_cast<const int8_t(*)[4]>(four)));
    }
  }
  RAG_SIMD_INLINE Lanes less(int32_t n) const {
    return {
        _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_sub_epi32(__m512i(sums), _mm512_set1_epi32(n)))};
  }
};

struct Nibbles {
  using Products = ByteProducts;

  __m512i bytes;

  // The low (0) or high (1) nibbles of 64 bytes.
  RAG_SIMD_INLINE static Nibbles load(const uint8_t* from, int half) {
    const __m512i words = _mm512_srli_epi16(_mm512_loadu_si512(from), 4 * half);
    return {_mm512_and_si512(words, _mm512_set1_epi8(15))};
  }
};

struct SignedBytes {
  using Products = ByteProducts;
  static constexpr int32_t kOffset = 128;

  __m512i bytes;

  RAG_SIMD_INLINE static SignedBytes load(const uint8_t* from) {
    return {_mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128))};
  }
};

struct PlainBytes {
  using Products = ByteProducts;

  __m512i bytes;

  RAG_SIMD_INLINE static PlainBytes load(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
};

RAG_SIMD_INLINE void store_bytes(Lanes whole, int8_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_maskz_cvtepi32_epi8(0xFFFF, _mm512_cvtps_epi32(whole.x)));
}

}  // namespace ragcache::kernels::avx512
