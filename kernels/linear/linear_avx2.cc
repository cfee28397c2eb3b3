// Matrix product with a packed right-hand side.
//
// With many tokens the multiply-adds decide. A panel is turned into fp32 once for all tokens of a
// task, into a buffer of the thread that stays in the second-level cache; then tiles of up to 6
// tokens × 16 outputs live in 12 registers: each step of the sum loads 16 weights and broadcasts 6
// activations for 12 multiply-adds, so that loads stay below what the processor can do beside them.
//
// With few tokens the weights decide: they come from memory as they are stored and become fp32 in
// registers, for a tile of few tokens × two panels. Two panels give the processor four chains of
// multiply-adds to overlap where one token gives it two.
//
// Either way an output's sum is one chain over the inputs, first to last.
#include "kernels/linear/linear_avx2.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "kernels/linear/panel_avx2.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
constexpr int kTileRows = 6;
// Up to so many tokens the weights are not worth a way through a buffer (linear_bench).
constexpr int kFusedRows = 3;
constexpr int kFusedPanels = 2;
constexpr int64_t kTaskRows = 192;
constexpr int64_t kTaskPanels = 6;
constexpr int64_t kTasksPerThread = 4;

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One input's weights of a panel.
struct alignas(64) Column {
  float outputs[kPanel];
};

// Fetches a block that is needed one panel (or pair of panels) later: the processor's own
// prefetching stops at every page.
template <class Block>
RAG_AVX2_INLINE void fetch(const uint8_t* block) {
  for (int64_t line = 0; line < Block::kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(block + line), _MM_HINT_T1);
  }
}

RAG_AVX2_INLINE void store_outputs(__m256 low, __m256 high, int64_t outputs, float* y) {
  if (outputs >= kPanel) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + 8, high);
    return;
  }
  _mm256_maskstore_ps(y, first_lanes(std::min<int64_t>(outputs, 8)), low);
  _mm256_maskstore_ps(y + 8, first_lanes(std::max<int64_t>(outputs - 8, 0)), high);
}

struct Tile {
  const float* x;          // [rows, in]
  const uint8_t* weights;  // of the first panel
  int64_t in;
  float* y;  // [rows, outputs] with stride `y_stride`
  int64_t y_stride;
  int64_t outputs;  // of the tile's panels; the last panel may be partly filled
};

template <int kRows>
RAG_AVX2 void multiply_tile(const Tile& tile) {
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  const float* x[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) x[r] = tile.x + r * tile.in;
  const auto* columns = reinterpret_cast<const Column*>(tile.weights);
  const int64_t in = tile.in;
  for (int64_t i = 0; i < in; ++i) {
    const __m256 w0 = _mm256_load_ps(columns[i].outputs);
    const __m256 w1 = _mm256_load_ps(columns[i].outputs + 8);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 value = _mm256_broadcast_ss(x[r] + i);
      sum[r][0] = _mm256_fmadd_ps(value, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(value, w1, sum[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    store_outputs(sum[r][0], sum[r][1], tile.outputs, tile.y + r * tile.y_stride);
  }
}

template <class Block>
RAG_AVX2 void dequantize_panel(const uint8_t* panel, int64_t in, Column* columns) {
  constexpr int64_t kInputs = Block::kGroups * Block::kGroup;
  const int64_t panel_bytes = in / kInputs * Block::kBytes;
  for (; in > 0; in -= kInputs, panel += Block::kBytes) {
    fetch<Block>(panel + panel_bytes);
    const Block block(panel);
    for (int64_t group = 0; group < Block::kGroups; ++group) {
#pragma GCC unroll 8
      for (int i = 0; i < Block::kGroup; ++i, ++columns) {
        __m256 w0, w1;
        block.weights(group, i, w0, w1);
        _mm256_store_ps(columns->outputs, w0);
        _mm256_store_ps(columns->outputs + 8, w1);
      }
    }
  }
}

template <class Block, int kRows, int kPanels>
RAG_AVX2 void multiply_stored(const Tile& tile) {
  __m256 sum[kPanels][kRows][2];
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) sum[p][r][0] = sum[p][r][1] = _mm256_setzero_ps();
  }
  constexpr int64_t kInputs = Block::kGroups * Block::kGroup;
  const int64_t panel_bytes = tile.in / kInputs * Block::kBytes;
  const uint8_t* panel = tile.weights;
  const float* x = tile.x;
  const int64_t in = tile.in;
  for (int64_t left = in; left > 0; left -= kInputs, panel += Block::kBytes) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) fetch<Block>(panel + (kPanels + p) * panel_bytes);
    const Block blocks[] = {Block(panel), Block(panel + (kPanels - 1) * panel_bytes)};
    for (int64_t group = 0; group < Block::kGroups; ++group, x += Block::kGroup) {
#pragma GCC unroll 8
      for (int i = 0; i < Block::kGroup; ++i) {
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          __m256 w0, w1;
          blocks[p].weights(group, i, w0, w1);
#pragma GCC unroll 3
          for (int r = 0; r < kRows; ++r) {
            const __m256 value = _mm256_broadcast_ss(x + r * in + i);
            sum[p][r][0] = _mm256_fmadd_ps(value, w0, sum[p][r][0]);
            sum[p][r][1] = _mm256_fmadd_ps(value, w1, sum[p][r][1]);
          }
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      store_outputs(sum[p][r][0], sum[p][r][1], tile.outputs - p * kPanel,
                    tile.y + r * tile.y_stride + p * kPanel);
    }
  }
}

using MultiplyTile = void (*)(const Tile&);
constexpr MultiplyTile kMultiplyTile[kTileRows + 1] = {
    nullptr,          multiply_tile<1>, multiply_tile<2>, multiply_tile<3>,
    multiply_tile<4>, multiply_tile<5>, multiply_tile<6>};

struct FormatKernels {
  void (*dequantize)(const uint8_t* panel, int64_t in, Column* columns);
  MultiplyTile multiply[kFusedRows][kFusedPanels];  // [rows - 1][panels - 1]
};

template <class Block>
constexpr FormatKernels kFormatKernels = {
    dequantize_panel<Block>,
    {{multiply_stored<Block, 1, 1>, multiply_stored<Block, 1, 2>},
     {multiply_stored<Block, 2, 1>, multiply_stored<Block, 2, 2>},
     {multiply_stored<Block, 3, 1>, multiply_stored<Block, 3, 2>}}};

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
  const int64_t pairs = div_up(weights.panels(), kFusedPanels);
  const int64_t tasks = std::min(pairs, kTasksPerThread * pool.threads());
  pool.run(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(pairs * (task + 1) / tasks * kFusedPanels, weights.panels());
    for (int64_t panel = pairs * task / tasks * kFusedPanels; panel < end; panel += kFusedPanels) {
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
  const int64_t panels = weights.panels();
  const int64_t row_tasks = div_up(n_tokens, kTaskRows);
  const int64_t panel_tasks =
      std::max(div_up(panels, kTaskPanels), std::min(panels, kTasksPerThread * pool.threads()));
  pool.run(row_tasks * panel_tasks, [&](int64_t task, int) {
    // Both are cut into nearly equal runs.
    const int64_t row_begin = n_tokens * (task % row_tasks) / row_tasks;
    const int64_t rows = n_tokens * (task % row_tasks + 1) / row_tasks - row_begin;
    const int64_t row_tiles = div_up(rows, kTileRows);
    const int64_t panel_end = panels * (task / row_tasks + 1) / panel_tasks;
    for (int64_t panel = panels * (task / row_tasks) / panel_tasks; panel < panel_end; ++panel) {
      const uint8_t* columns = weights.panel(panel);
      if (weights.format() != WeightFormat::kF32) {
        static thread_local std::vector<Column> buffer;
        if (static_cast<int64_t>(buffer.size()) < weights.in()) buffer.resize(weights.in());
        dequantize(columns, weights.in(), buffer.data());
        columns = reinterpret_cast<const uint8_t*>(buffer.data());
      }
      for (int64_t tile = 0; tile < row_tiles; ++tile) {
        const int64_t begin = row_begin + rows * tile / row_tiles;
        const int64_t end = row_begin + rows * (tile + 1) / row_tiles;
        kMultiplyTile[end - begin]({.x = x + begin * weights.in(),
                                    .weights = columns,
                                    .in = weights.in(),
                                    .y = y + begin * weights.out() + panel * kPanel,
                                    .y_stride = weights.out(),
                                    .outputs = weights.out() - panel * kPanel});
      }
    }
  });
}

}  // namespace

void linear_avx2(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 ThreadPool& pool) {
  if (n_tokens == 0) return;
  if (n_tokens <= kFusedRows) {
    multiply_few(x, n_tokens, weights, y, pool);
  } else {
    multiply_many(x, n_tokens, weights, y, pool);
  }
}

}  // namespace ragcache::kernels
