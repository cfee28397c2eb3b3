// Matrix product with a packed right-hand side.
//
// A tile of 6 tokens × 16 outputs lives in 12 registers; each step of the sum loads 16 weights
// and broadcasts 6 activations for 12 multiply-adds, so that loads stay below what the processor
// can do beside them. The sum is not cut: a tile is written once, and a panel streams from the
// second-level cache for each row tile of its task. While the first row tile of a panel runs, the
// next panel is fetched into that cache: with few tokens the product waits for weights alone.
#include "kernels/linear/linear_avx2.h"

#include <algorithm>

#include "kernels/simd/avx2.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
constexpr int kTileRows = 6;
constexpr int64_t kTaskRows = 48;
constexpr int64_t kTaskPanels = 6;

struct Tile {
  const float* x;        // [rows, in] with stride `in`
  const float* weights;  // [in, 16]
  int64_t in;
  float* y;  // [rows, outputs]
  int64_t y_stride;
  int64_t outputs;    // of 16
  const float* next;  // the panel to fetch, as long as `weights`
};

template <int kRows, bool kFetchNext>
RAG_AVX2 void multiply_tile(const Tile& tile) {
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  const float* x[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) x[r] = tile.x + r * tile.in;
  const float* weights = tile.weights;
  const float* next = tile.next;
  const int64_t in = tile.in;
  for (int64_t i = 0; i < in; ++i) {
    if constexpr (kFetchNext) {
      _mm_prefetch(reinterpret_cast<const char*>(next + i * kPanel), _MM_HINT_T1);
    }
    const __m256 w0 = _mm256_load_ps(weights + i * kPanel);
    const __m256 w1 = _mm256_load_ps(weights + i * kPanel + 8);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 value = _mm256_broadcast_ss(x[r] + i);
      sum[r][0] = _mm256_fmadd_ps(value, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(value, w1, sum[r][1]);
    }
  }
  if (tile.outputs == kPanel) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(tile.y + r * tile.y_stride, sum[r][0]);
      _mm256_storeu_ps(tile.y + r * tile.y_stride + 8, sum[r][1]);
    }
    return;
  }
  const __m256i mask0 = first_lanes(std::min<int64_t>(tile.outputs, 8));
  const __m256i mask1 = first_lanes(std::max<int64_t>(tile.outputs - 8, 0));
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    _mm256_maskstore_ps(tile.y + r * tile.y_stride, mask0, sum[r][0]);
    _mm256_maskstore_ps(tile.y + r * tile.y_stride + 8, mask1, sum[r][1]);
  }
}

using MultiplyTile = void (*)(const Tile&);
template <bool kFetchNext>
constexpr MultiplyTile kMultiplyTile[kTileRows + 1] = {nullptr,
                                                       multiply_tile<1, kFetchNext>,
                                                       multiply_tile<2, kFetchNext>,
                                                       multiply_tile<3, kFetchNext>,
                                                       multiply_tile<4, kFetchNext>,
                                                       multiply_tile<5, kFetchNext>,
                                                       multiply_tile<6, kFetchNext>};

}  // namespace

void linear_avx2(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 ThreadPool& pool) {
  const int64_t in = weights.in();
  const int64_t out = weights.out();
  const int64_t panels = weights.panels();
  const int64_t row_tasks = (n_tokens + kTaskRows - 1) / kTaskRows;
  const int64_t panel_tasks = (panels + kTaskPanels - 1) / kTaskPanels;
  pool.run(row_tasks * panel_tasks, [&](int64_t task, int) {
    const int64_t row_begin = task % row_tasks * kTaskRows;
    const int64_t row_end = std::min(row_begin + kTaskRows, n_tokens);
    const int64_t panel_begin = task / row_tasks * kTaskPanels;
    const int64_t panel_end = std::min(panel_begin + kTaskPanels, panels);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      Tile tile{.weights = weights.panel(panel),
                .in = in,
                .y_stride = out,
                .outputs = std::min(kPanel, out - panel * kPanel),
                .next = weights.panel(std::min(panel + 1, panels - 1))};
      for (int64_t row = row_begin; row < row_end; row += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, row_end - row);
        tile.x = x + row * in;
        tile.y = y + row * out + panel * kPanel;
        row == row_begin ? kMultiplyTile<true>[rows](tile) : kMultiplyTile<false>[rows](tile);
      }
    }
  });
}

}  // namespace ragcache::kernels
