#pragma once

// Matrix product of bytes with a packed right-hand side, for AVX2 or AVX-512
// (kernels/simd/lanes.h).
//
// A tile is up to kByteRows tokens × a panel of 16 outputs, block of 32 inputs by block: the
// block's weights become 8 registers of 4 inputs × 16 outputs, every token's bytes are multiplied
// with them four at a time, and the whole numbers that come of it are added to the token's sums as
// fp32. A block's weights are unpacked once for a tile and its words read from memory once for a
// task, whose tokens stay in the second-level cache.

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "kernels/half/byte_scale.h"
#include "kernels/int8_linear/int8_linear_versions.h"
#include "kernels/linear/tile_tasks.h"
#include "kernels/simd/byte_products.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
constexpr int64_t kBlock = PackedWeights::kQuantBlock;
constexpr int kQuads = kBlock / 4;
// Of a task that rounds.
constexpr int64_t kTaskTokens = 16;

// One block of a panel (packed_weights.h): scale, perhaps minimum, and 8 × 4 inputs. A byte stands
// for itself less kOffset.
template <bool kHasMinimum>
struct Q4Block {
  using Weights = Nibbles;
  static constexpr bool kMinimum = kHasMinimum;
  static constexpr int32_t kOffset = kHasMinimum ? 0 : 8;
  static constexpr int64_t kHeaderBytes = kHasMinimum ? 64 : 32;
  static constexpr int64_t kBytes = kHeaderBytes + 256;

  RAG_SIMD_INLINE static Weights weights(const uint8_t* block, int quad) {
    return Nibbles::load(block + kHeaderBytes + quad / 2 * 64, quad % 2);
  }
};

struct Q8Block {
  using Weights = SignedBytes;
  static constexpr bool kMinimum = false;
  static constexpr int32_t kOffset = SignedBytes::kOffset;
  static constexpr int64_t kHeaderBytes = 32;
  static constexpr int64_t kBytes = kHeaderBytes + 512;

  RAG_SIMD_INLINE static Weights weights(const uint8_t* block, int quad) {
    return SignedBytes::load(block + kHeaderBytes + quad * 64);
  }
};

// Rows whose products are added by turns: one row's own wait for one another.
constexpr int kRowsTogether = 4;

struct Tile {
  const int8_t* bytes;            // [rows, in]
  const Int8Rows::Block* scales;  // [rows, in / 32]
  const uint8_t* panel;
  int64_t in;
  float* y;  // [rows, outputs] with stride `y_stride`
  int64_t y_stride;
  int64_t outputs;  // of the panel; the last may be partly filled
};

template <class Block, int kRows>
RAG_SIMD void multiply_tile(const Tile& tile) {
  Lanes sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r] = Lanes::zero();
  const int64_t in = tile.in;
  const int64_t n_blocks = in / kBlock;
  const uint8_t* block = tile.panel;
  for (int64_t b = 0; b < n_blocks; ++b, block += Block::kBytes) {
    // The processor's own prefetching stops at every page.
    for (int64_t line = 0; line < Block::kBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(block + n_blocks * Block::kBytes + line),
                   _MM_HINT_T1);
    }
    const auto* halves = reinterpret_cast<const Half*>(block);
    const Lanes scale = Lanes::load(halves);
    Lanes minimum = Lanes::zero();
    if constexpr (Block::kMinimum) minimum = Lanes::load(halves + kPanel);
    typename Block::Weights weights[kQuads];
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) weights[q] = Block::weights(block, q);
#pragma GCC unroll 16
    for (int first = 0; first < kRows; first += kRowsTogether) {
      typename Block::Weights::Products products[kRowsTogether];
#pragma GCC unroll 8
      for (int r = 0; r < kRowsTogether; ++r) products[r] = Block::Weights::Products::zero();
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
#pragma GCC unroll 8
        for (int r = 0; r < kRowsTogether; ++r) {
          if (first + r >= kRows) continue;
          products[r].add(weights[q], tile.bytes + (first + r) * in + b * kBlock + 4 * q);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRowsTogether; ++r) {
        if (first + r >= kRows) continue;
        const Int8Rows::Block& row = tile.scales[(first + r) * n_blocks + b];
        const Lanes product = products[r].less(Block::kOffset * row.total) * Lanes::all(row.scale);
        sum[first + r] = multiply_add(product, scale, sum[first + r]);
        if constexpr (Block::kMinimum) {
          sum[first + r] = multiply_add(Lanes::all(row.sum), minimum, sum[first + r]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = tile.y + r * tile.y_stride;
    if (tile.outputs >= kPanel) {
      sum[r].store(y);
    } else {
      sum[r].store_first(tile.outputs, y);
    }
  }
}

using MultiplyTile = void (*)(const Tile&);
using MultiplyTiles = std::array<MultiplyTile, kByteRows>;  // [rows - 1]

template <class Block, int... kRows>
constexpr MultiplyTiles tiles_of(std::integer_sequence<int, kRows...>) {
  return {multiply_tile<Block, kRows + 1>...};
}
template <class Block>
constexpr MultiplyTiles kMultiplyTile =
    tiles_of<Block>(std::make_integer_sequence<int, kByteRows>());

const MultiplyTiles& tiles_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return kMultiplyTile<Q8Block>;
    case WeightFormat::kQ4_0:
      return kMultiplyTile<Q4Block<false>>;
    case WeightFormat::kQ4_1:
      return kMultiplyTile<Q4Block<true>>;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      break;
  }
  RAG_CHECK(false);
}

RAG_SIMD void round_row(const float* x, int64_t in, int8_t* bytes, Int8Rows::Block* blocks) {
  for (int64_t i = 0; i < in; i += kBlock) {
    const Lanes low = Lanes::load(x + i), high = Lanes::load(x + i + kPanel);
    const auto [scale, inverse] = byte_scale(max_of(max(magnitude(low), magnitude(high))));
    const Lanes rounded_low = rounded(low * Lanes::all(inverse));
    const Lanes rounded_high = rounded(high * Lanes::all(inverse));
    store_bytes(rounded_low, bytes + i);
    store_bytes(rounded_high, bytes + i + kPanel);
    const float total = sum_of(rounded_low + rounded_high);
    *blocks++ = {.scale = scale, .sum = scale * total, .total = static_cast<int32_t>(total)};
  }
}

void round_rows(const float* x, int64_t n_tokens, int64_t in, Int8Rows& to, ThreadPool& pool) {
  const int64_t n_blocks = in / kBlock;
  if (static_cast<int64_t>(to.bytes.size()) < n_tokens * in) to.bytes.resize(n_tokens * in);
  if (static_cast<int64_t>(to.blocks.size()) < n_tokens * n_blocks) {
    to.blocks.resize(n_tokens * n_blocks);
  }
  pool.run(div_up(n_tokens, kTaskTokens), [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) {
      round_row(x + t * in, in, to.bytes.data() + t * in, to.blocks.data() + t * n_blocks);
    }
  });
}

}  // namespace

void int8_linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 Int8Rows& rows, ThreadPool& pool) {
  if (n_tokens == 0) return;
  const int64_t in = weights.in();
  round_rows(x, n_tokens, in, rows, pool);
  const MultiplyTiles& multiply = tiles_of(weights.format());
  run_tile_tasks(n_tokens, weights.panels(), 1, pool, [&](Run task_rows, Run panels) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      for_tiles(task_rows, kByteRows, [&](Run tile) {
        multiply[tile.size() - 1]({.bytes = rows.bytes.data() + tile.begin * in,
                                   .scales = rows.blocks.data() + tile.begin * (in / kBlock),
                                   .panel = weights.panel(panel),
                                   .in = in,
                                   .y = y + tile.begin * weights.out() + panel * kPanel,
                                   .y_stride = weights.out(),
                                   .outputs = weights.out() - panel * kPanel});
      });
    }
  });
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
