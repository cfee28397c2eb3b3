#pragma once

// Weights of one block of a panel (packed_weights.h) as two registers of 8 outputs per input. The
// value is the one that scalar dequantisation gives: scale · q has no rounding in fp32, and the
// multiply-add rounds once, as the addition of a minimum would.
//
// A block type has kBytes, kGroups × kGroup inputs, a constructor that reads scales, and
// weights(group, i, w0, w1).

#include <cstdint>

#include "kernels/simd/avx2.h"

namespace ragcache::kernels {

struct F32Block {
  static constexpr int64_t kBytes = 64;
  static constexpr int64_t kGroups = 1;
  static constexpr int kGroup = 1;

  const uint8_t* bytes;

  RAG_AVX2_INLINE explicit F32Block(const uint8_t* block) : bytes(block) {}
  RAG_AVX2_INLINE void weights(int64_t, int, __m256& w0, __m256& w1) const {
    const auto* values = reinterpret_cast<const float*>(bytes);
    w0 = _mm256_load_ps(values);
    w1 = _mm256_load_ps(values + 8);
  }
};

RAG_AVX2_INLINE __m256 load_halves(const uint8_t* bytes) {
  return load_lanes(reinterpret_cast<const uint16_t*>(bytes));
}

struct F16Block {
  static constexpr int64_t kBytes = 32;
  static constexpr int64_t kGroups = 1;
  static constexpr int kGroup = 1;

  const uint8_t* bytes;

  RAG_AVX2_INLINE explicit F16Block(const uint8_t* block) : bytes(block) {}
  RAG_AVX2_INLINE void weights(int64_t, int, __m256& w0, __m256& w1) const {
    w0 = load_halves(bytes);
    w1 = load_halves(bytes + 16);
  }
};

struct Q8Block {
  static constexpr int64_t kBytes = 32 + 512;
  static constexpr int64_t kGroups = 4;
  static constexpr int kGroup = 8;

  const uint8_t* values;
  __m256 scale0, scale1;

  RAG_AVX2_INLINE explicit Q8Block(const uint8_t* block)
      : values(block + 32), scale0(load_halves(block)), scale1(load_halves(block + 16)) {}
  RAG_AVX2_INLINE void weights(int64_t group, int i, __m256& w0, __m256& w1) const {
    const uint8_t* input = values + (group * kGroup + i) * 16;
    w0 = _mm256_mul_ps(scale0, quants(input));
    w1 = _mm256_mul_ps(scale1, quants(input + 8));
  }

 private:
  RAG_AVX2_INLINE static __m256 quants(const uint8_t* bytes) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
  }
};

template <bool kHasMinimum>
struct Q4Block {
  static constexpr int64_t kHeaderBytes = kHasMinimum ? 64 : 32;
  static constexpr int64_t kBytes = kHeaderBytes + 256;
  static constexpr int64_t kGroups = 4;
  static constexpr int kGroup = 8;

  const uint8_t* words;
  __m256 scale0, scale1, minimum0, minimum1;

  RAG_AVX2_INLINE explicit Q4Block(const uint8_t* block)
      : words(block + kHeaderBytes), scale0(load_halves(block)), scale1(load_halves(block + 16)) {
    if constexpr (kHasMinimum) {
      minimum0 = load_halves(block + 32);
      minimum1 = load_halves(block + 48);
    } else {
      minimum0 = _mm256_mul_ps(scale0, _mm256_set1_ps(-8.0f));
      minimum1 = _mm256_mul_ps(scale1, _mm256_set1_ps(-8.0f));
    }
  }
  RAG_AVX2_INLINE void weights(int64_t group, int i, __m256& w0, __m256& w1) const {
    const uint8_t* group_words = words + group * 64;
    w0 = _mm256_fmadd_ps(scale0, nibbles(group_words, i), minimum0);
    w1 = _mm256_fmadd_ps(scale1, nibbles(group_words + 32, i), minimum1);
  }

 private:
  RAG_AVX2_INLINE static __m256 nibbles(const uint8_t* bytes, int i) {
    const __m256i eight = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(eight, 4 * i), _mm256_set1_epi32(15)));
  }
};

using Q4_0Block = Q4Block<false>;
using Q4_1Block = Q4Block<true>;

}  // namespace ragcache::kernels
