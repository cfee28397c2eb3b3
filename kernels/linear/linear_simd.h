#pragma once

// Matrix product with a packed right-hand side, for AVX2 or AVX-512 (kernels/simd/lanes.h).
//
// With many tokens the multiply-adds decide. Panels are turned into fp32 once for all tokens of a
// task, into a buffer of the thread that stays in the second-level cache; then the sums of a tile
// of tokens × outputs live in registers. For AVX2 a tile is 6 × 16: each step of the sum loads 16
// weights and broadcasts 6 activations for 12 multiply-adds, so that loads stay below what the
// processor can do beside them. For AVX-512 it is 12 × 32.
//
// With few tokens the weights decide: they come from memory as they are stored and become fp32 in
// registers, for a tile of few tokens × several panels, which give the processor four chains of
// multiply-adds to overlap.
//
// Either way an output's sum is one chain over the inputs, first to last.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kernels/linear/linear_versions.h"
#include "kernels/linear/panel.h"
#include "kernels/linear/tile_tasks.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
// Up to so many tokens the weights are not worth a way through a buffer (linear_bench).
constexpr int kFusedRows = 3;
// Of one token, as many chains of multiply-adds as registers hold these panels' sums: four.
constexpr int kFusedPanels = 2 * kTilePanels;

// One input's weights of a panel.
struct alignas(64) Column {
  float outputs[kPanel];
};

// Fetches a block that is needed one panel (or group of them) later: the processor's own
// prefetching stops at every page.
template <class Block>
RAG_SIMD_INLINE void fetch(const uint8_t* block) {
  for (int64_t line = 0; line < Block::kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(block + line), _MM_HINT_T1);
  }
}

RAG_SIMD_INLINE void store_outputs(Lanes sum, int64_t outputs, float* y) {
  if (outputs >= kPanel) {
    sum.store(y);
  } else {
    sum.store_first(outputs, y);
  }
}

struct Tile {
  const float* x;          // [rows, in]
  const uint8_t* weights;  // of the first panel
  int64_t in;
  float* y;  // [rows, outputs] with stride `y_stride`
  int64_t y_stride;
  int64_t outputs;  // of the tile's panels; the last panel may be partly filled
};

template <int kRows, int kPanels>
RAG_SIMD_INLINE void store_tile(const Tile& tile, const Lanes (&sum)[kPanels][kRows]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      store_outputs(sum[p][r], tile.outputs - p * kPanel, tile.y + r * tile.y_stride + p * kPanel);
    }
  }
}

// Of panels in fp32.
template <int kRows, int kPanels>
RAG_SIMD void multiply_tile(const Tile& tile) {
  Lanes sum[kPanels][kRows];
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) sum[p][r] = Lanes::zero();
  }
  const float* x[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) x[r] = tile.x + r * tile.in;
  const auto* columns = reinterpret_cast<const Column*>(tile.weights);
  const int64_t in = tile.in;
  for (int64_t i = 0; i < in; ++i) {
    Lanes w[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) w[p] = Lanes::load(columns[p * in + i].outputs);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Lanes value = Lanes::all(x[r][i]);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) sum[p][r] = multiply_add(value, w[p], sum[p][r]);
    }
  }
  store_tile(tile, sum);
}

template <class Block>
RAG_SIMD void dequantize_panel(const uint8_t* panel, int64_t in, Column* columns) {
  constexpr int64_t kInputs = Block::kGroups * Block::kGroup;
  const int64_t panel_bytes = in / kInputs * Block::kBytes;
  for (; in > 0; in -= kInputs, panel += Block::kBytes) {
    fetch<Block>(panel + panel_bytes);
    const Block block(panel);
    for (int64_t group = 0; group < Block::kGroups; ++group) {
#pragma GCC unroll 8
      for (int i = 0; i < Block::kGroup; ++i, ++columns) {
        block.weights(group, i).store(columns->outputs);
      }
    }
  }
}

template <class Block, int kRows, int kPanels>
RAG_SIMD void multiply_stored(const Tile& tile) {
  Lanes sum[kPanels][kRows];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) sum[p][r] = Lanes::zero();
  }
  constexpr int64_t kInputs = Block::kGroups * Block::kGroup;
  const int64_t panel_bytes = tile.in / kInputs * Block::kBytes;
  const uint8_t* panel = tile.weights;
  const float* x = tile.x;
  const int64_t in = tile.in;
  for (int64_t left = in; left > 0; left -= kInputs, panel += Block::kBytes) {
    Block blocks[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      fetch<Block>(panel + (kPanels + p) * panel_bytes);
      blocks[p] = Block(panel + p * panel_bytes);
    }
    for (int64_t group = 0; group < Block::kGroups; ++group, x += Block::kGroup) {
#pragma GCC unroll 8
      for (int i = 0; i < Block::kGroup; ++i) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          const Lanes w = blocks[p].weights(group, i);
#pragma GCC unroll 3
          for (int r = 0; r < kRows; ++r) {
            sum[p][r] = multiply_add(Lanes::all(x[r * in + i]), w, sum[p][r]);
          }
        }
      }
    }
  }
  store_tile(tile, sum);
}

using MultiplyTile = void (*)(const Tile&);

// [rows - 1]
template <int kPanels, int... kRows>
constexpr std::array<MultiplyTile, sizeof...(kRows)> tiles_of(
    std::integer_sequence<int, kRows...>) {
  return {multiply_tile<kRows + 1, kPanels>...};
}
template <int kPanels>
constexpr auto kMultiplyTile = tiles_of<kPanels>(std::make_integer_sequence<int, kTileRows>());

// [panels - 1]
template <class Block, int kRows, int... kPanels>
constexpr std::array<MultiplyTile, sizeof...(kPanels)> stored_of(
    std::integer_sequence<int, kPanels...>) {
  return {multiply_stored<Block, kRows, kPanels + 1>...};
}
template <class Block, int kRows>
constexpr auto kMultiplyStored =
    stored_of<Block, kRows>(std::make_integer_sequence<int, kFusedPanels>());

struct FormatKernels {
  void (*dequantize)(const uint8_t* panel, int64_t in, Column* columns);
  std::array<MultiplyTile, kFusedPanels> multiply[kFusedRows];  // [rows - 1][panels - 1]
};

template <class Block>
constexpr FormatKernels kFormatKernels = {
    dequantize_panel<Block>,
    {kMultiplyStored<Block, 1>, kMultiplyStored<Block, 2>, kMultiplyStored<Block, 3>}};

const FormatKernels& kernels_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return kFormatKernels<F32Block>;
    case WeightFormat::kF16:
      return kFormatKernels<F16Block>;
    case WeightFormat::kQ8_0:
      return kFormatKernels<Q8Block>;
    case WeightFormat::kQ4_0:
      return kFormatKernels<Q4_0Block>;
    case WeightFormat::kQ4_1:
      return kFormatKernels<Q4_1Block>;
  }
  RAG_CHECK(false);
}

// Up to kFusedRows tokens.
void multiply_few(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                  ThreadPool& pool) {
  const auto& multiply = kernels_of(weights.format()).multiply[n_tokens - 1];
  const int64_t groups = div_up(weights.panels(), kFusedPanels);
  const int64_t tasks = std::min(groups, kTasksPerThread * pool.threads());
  pool.run(tasks, [&](int64_t task, int) {
    const Run run = run_of(groups, tasks, task);
    const int64_t end = std::min(run.end * kFusedPanels, weights.panels());
    for (int64_t panel = run.begin * kFusedPanels; panel < end; panel += kFusedPanels) {
      const int64_t panels = std::min<int64_t>(kFusedPanels, end - panel);
      multiply[panels - 1]({.x = x,
                            .weights = weights.panel(panel),
                            .in = weights.in(),
                            .y = y + panel * kPanel,
                            .y_stride = weights.out(),
                            .outputs = weights.out() - panel * kPanel});
    }
  });
}

void multiply_many(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                   ThreadPool& pool) {
  const auto dequantize = kernels_of(weights.format()).dequantize;
  const int64_t in = weights.in();
  run_tile_tasks(n_tokens, weights.panels(), kTilePanels, pool, [&](Run rows, Run groups) {
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t panel = group * kTilePanels;
      const int64_t panels = std::min<int64_t>(kTilePanels, weights.panels() - panel);
      const uint8_t* columns = weights.panel(panel);
      if (weights.format() != WeightFormat::kF32) {
        static thread_local std::vector<Column> buffer;
        const auto wanted = static_cast<size_t>(kTilePanels * in);
        if (buffer.size() < wanted) buffer.resize(wanted);
        for (int64_t p = 0; p < panels; ++p) {
          dequantize(weights.panel(panel + p), in, buffer.data() + p * in);
        }
        columns = reinterpret_cast<const uint8_t*>(buffer.data());
      }
      const auto& multiply = panels == kTilePanels ? kMultiplyTile<kTilePanels> : kMultiplyTile<1>;
      for_tiles(rows, kTileRows, [&](Run tile) {
        multiply[tile.size() - 1]({.x = x + tile.begin * in,
                                   .weights = columns,
                                   .in = in,
                                   .y = y + tile.begin * weights.out() + panel * kPanel,
                                   .y_stride = weights.out(),
                                   .outputs = weights.out() - panel * kPanel});
      });
    }
  });
}

}  // namespace

void linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
            ThreadPool& pool) {
  if (n_tokens == 0) return;
  if (n_tokens <= kFusedRows) {
    multiply_few(x, n_tokens, weights, y, pool);
  } else {
    multiply_many(x, n_tokens, weights, y, pool);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
