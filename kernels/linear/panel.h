#pragma once

// Weights of one block of a panel (packed_weights.h), 16 outputs of one input at a time. The value
// is the one that scalar dequantisation gives: scale · q has no rounding in fp32, and the
// multiply-add rounds once, as the addition of a minimum would.
//
// A block type has kBytes, kGroups × kGroup inputs, a constructor that reads scales, and
// weights(group, i).

#include <cstdint>

#include "kernels/half/half.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {

RAG_SIMD_INLINE Lanes load_halves(const uint8_t* bytes) {
  return Lanes::load(reinterpret_cast<const Half*>(bytes));
}

struct F32Block {
  static constexpr int64_t kBytes = 64;
  static constexpr int64_t kGroups = 1;
  static constexpr int kGroup = 1;

  const uint8_t* bytes;

  F32Block() = default;
  RAG_SIMD_INLINE explicit F32Block(const uint8_t* block) : bytes(block) {}
  RAG_SIMD_INLINE Lanes weights(int64_t, int) const {
    return Lanes::load(reinterpret_cast<const float*>(bytes));
  }
};

struct F16Block {
  static constexpr int64_t kBytes = 32;
  static constexpr int64_t kGroups = 1;
  static constexpr int kGroup = 1;

  const uint8_t* bytes;

  F16Block() = default;
  RAG_SIMD_INLINE explicit F16Block(const uint8_t* block) : bytes(block) {}
  RAG_SIMD_INLINE Lanes weights(int64_t, int) const { return load_halves(bytes); }
};

struct Q8Block {
  static constexpr int64_t kBytes = 32 + 512;
  static constexpr int64_t kGroups = 8;
  static constexpr int kGroup = 4;

  const uint32_t* words;
  Lanes scale;

  Q8Block() = default;
  RAG_SIMD_INLINE explicit Q8Block(const uint8_t* block)
      : words(reinterpret_cast<const uint32_t*>(block + 32)), scale(load_halves(block)) {}
  RAG_SIMD_INLINE Lanes weights(int64_t group, int i) const {
    return scale * Lanes::signed_bytes(words + group * 16, i);
  }
};

template <bool kHasMinimum>
struct Q4Block {
  static constexpr int64_t kHeaderBytes = kHasMinimum ? 64 : 32;
  static constexpr int64_t kBytes = kHeaderBytes + 256;
  static constexpr int64_t kGroups = 4;
  static constexpr int kGroup = 8;

  const uint32_t* words;
  Lanes scale, minimum;

  Q4Block() = default;
  RAG_SIMD_INLINE explicit Q4Block(const uint8_t* block)
      : words(reinterpret_cast<const uint32_t*>(block + kHeaderBytes)),
        scale(load_halves(block)),
        minimum(kHasMinimum ? load_halves(block + 32) : scale * Lanes::all(-8.0f)) {}
  RAG_SIMD_INLINE Lanes weights(int64_t group, int i) const {
    // The low nibbles of a word's bytes come first.
    const int nibble = i < 4 ? 2 * i : 2 * (i - 4) + 1;
    return multiply_add(scale, Lanes::nibbles(words + group * 16, nibble), minimum);
  }
};

using Q4_0Block = Q4Block<false>;
using Q4_1Block = Q4Block<true>;

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
