#pragma once

// What the kernel shares with its kinds of tiles: contexts are walked in chunks of kChunkTiles
// tiles, whose scores each row has side by side.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kv_layout/kv_layout.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {

inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kColumns = KvLayout::kBlockTokens;
inline constexpr int64_t kChunkTiles = 4;
inline constexpr int64_t kChunkColumns = kChunkTiles * kColumns;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What the rows' scores are relative to: a row weighs its columns 2^(score - base), and multiplies
// what it has summed up so far with `rescale`.
struct RowBases {
  float* base;     // [rows]
  float* rescale;  // [rows]
};

// Moves the rows' maxima on to the highest of their scores [rows, kChunkColumns].
RAG_SIMD_INLINE void move_maxima(const float* scores, int64_t columns, int64_t rows, float* maxima,
                                 RowBases to) {
  for (int64_t r = 0; r < rows; ++r, scores += kChunkColumns) {
    Lanes highest = Lanes::load(scores);
    for (int64_t i = kLanes; i < columns; i += kLanes) {
      highest = max(highest, Lanes::load(scores + i));
    }
    const float old_maximum = maxima[r];
    maxima[r] = std::max(old_maximum, max_of(highest));
    // A row that has seen nothing yet keeps minus infinity; its weights are all 0.
    to.base[r] = maxima[r] == kMinusInfinity ? 0.0f : maxima[r];
    // Most rows begin with this chunk, or their maximum stands.
    to.rescale[r] = old_maximum == kMinusInfinity ? 0.0f
                    : old_maximum == to.base[r]   ? 1.0f
                                                  : std::exp2(old_maximum - to.base[r]);
  }
}

RAG_SIMD inline void scale_row(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    (Lanes::load(x + i) * Lanes::all(factor)).store(y + i);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
